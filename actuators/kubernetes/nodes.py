"""Nodes: cordon, uncordon, taint, untaint. The rules are those of actuators.kubernetes.cordoning."""

from actuators.action import Outcome
from actuators.binding import verb
from actuators.kubernetes.cordoning import cordon, parsed_taint, taint, uncordon, untaint
from actuators.kubernetes.family import Family, opted_out
from actuators.kubernetes.object_change import ObjectChange, Plan
from actuators.kubernetes.outcomes import failed
from serving.fleet.entity import Entity, EntityKind
from serving.kubernetes.client import path_of

UNWELL = "fleetwarden.dev/unwell:NoSchedule"


class NodesActuator(Family):
    """`node.cordon`, `node.uncordon`, `node.taint` and `node.untaint` on nodes, whether on the map or not."""

    kinds = dict.fromkeys(("node.cordon", "node.uncordon", "node.taint", "node.untaint"), (EntityKind.NODE,))

    @verb("node.cordon", summary="let nothing new be placed on the node", undo="node.uncordon")
    def cordon(self, target: Entity) -> ObjectChange | Outcome:
        """Make the node unschedulable. Nothing that runs there is touched."""
        return self._change("node.cordon", target, cordon)

    @verb("node.uncordon", summary="let pods be placed on the node again", undo="node.cordon", recovery=True)
    def uncordon(self, target: Entity) -> ObjectChange | Outcome:
        """Let go of the node; schedulable again when no other incident holds it. A person's cordon stays."""
        return self._change("node.uncordon", target, uncordon)

    @verb("node.taint", summary="keep pods off the node that do not tolerate the taint", undo="node.untaint")
    def taint(self, target: Entity, *, taint: str = UNWELL) -> ObjectChange | Outcome:
        """Give the node a taint, written key=value:Effect. NoExecute is refused: it ends pods past their budgets."""
        return self._tainting("node.taint", target, taint)

    @verb("node.untaint", summary="take a taint of the warden off the node", undo="node.taint", recovery=True)
    def untaint(self, target: Entity, *, taint: str = UNWELL) -> ObjectChange | Outcome:
        """Take a taint off that the warden gave; others' taints stay."""
        return self._tainting("node.untaint", target, taint)

    def _tainting(self, name: str, target: Entity, text: str) -> ObjectChange | Outcome:
        try:
            one = parsed_taint(text)
        except ValueError as wrong:
            return failed(str(wrong), permanent=True)
        plan = taint if name == "node.taint" else untaint
        return self._change(name, target, lambda node, key: plan(node, key, one))

    def _change(self, name: str, target: Entity, plan: Plan) -> ObjectChange | Outcome:
        out = opted_out(target, self._access)
        if out is not None:
            return out
        return ObjectChange(self._access, name, path_of("v1", "nodes", target.name), str(target), plan)
