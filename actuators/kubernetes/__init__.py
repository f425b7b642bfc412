"""Changes to a cluster through the API of Kubernetes, and the rights that each family of them needs.

Does not belong here: what is known of a cluster (serving.kubernetes), deciding what to change (agent.decision).
"""
