"""What is known of a cluster of Kubernetes, and the rights that knowing it needs.

Does not belong here: changing anything in the cluster (actuators.kubernetes).
"""
