"""The process kubelet: nodes whose pods are processes of this machine, for a real control plane that knows no difference.

It registers nodes, renews their leases, and runs the pods that the real scheduler binds to them: no containers, no images,
no file systems, no limits on memory; processes, probes, restarts, grace and statuses as the real kubelet has them. Where its
behaviour is copied, the docstring names the source (paths are those of github.com/kubernetes/kubernetes at v1.36).

**A pod's address.** Each pod has an address of its own in 127.0.0.0/8, all of which is the loopback on Linux, published as
status.podIP. Its process listens there on the port that its container declares: http://podIP:containerPort reaches it, as
in a cluster, and two pods may use the same port. One thing does not: the API server takes no loopback address into an
EndpointSlice (ValidateEndpointIP in pkg/apis/core/validation), so a Service that selects such pods has no endpoints.

Not copied: init containers, volumes, gRPC probes, lifecycle hooks after the start, exec and logs over the API. A pod with
init containers or gRPC probes is rejected with the reason Unsupported; volumes are ignored.

Does not belong here: the control plane (the package above), and what a simulated engine does (serving.simulator).
"""
