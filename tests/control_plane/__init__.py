"""A real Kubernetes control plane on this machine, and a kubelet that runs pods as local processes: support for tests.

Does not belong here: tests (they lie in folders of their own beside this one), anything that the product needs to run, and
stand-ins for the API server; what is here is the real one.
"""
