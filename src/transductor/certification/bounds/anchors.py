"""What an error bound stands on: an anchor point for every state of a machine, and the norm that measures errors."""

from __future__ import annotations

from dataclasses import dataclass

from transductor.certification.ball_arithmetic import Array
from transductor.certification.bounds.horizon import Margins, readout_margins, separation_margins
from transductor.certification.bounds.norms import Atoms, Ellipsoid, Euclidean, Largest, Norm, NormError, Sum
from transductor.certification.reachability import Graph
from transductor.certification.subjects import Subject


@dataclass(frozen=True, eq=False)
class Anchors:
    """Where the states of a machine lie in a head's space, and how errors are measured there.

    Attributes:
        points: ``(D, n)``, one for each node of the graph.
        kind: The kind of norm.
        form: What the norm needs: the form of an ellipsoid, the inverse of atoms, otherwise nothing.
        extra: ``(D, m)``: atoms besides the points.
        targets: ``(n, V)``, the graph, where it tells more states apart than the machine and the domain do.
    """

    points: Array
    kind: str
    form: Array | None = None
    extra: Array | None = None
    targets: Array | None = None

    def norm(self) -> Norm:
        """Return the norm, or raise a ValueError if what it needs is not there."""
        match self.kind:
            case "sum":
                return Sum()
            case "largest":
                return Largest()
            case "euclidean":
                return Euclidean(len(self.points))
            case "ellipsoid" if self.form is not None and len(self.form) == len(self.points):
                return Ellipsoid(self.form)
            case "atoms" if self.form is not None and self.extra is not None:
                return Atoms(self.points, self.extra, self.form)
        raise NormError(f"norm must be sum, largest, euclidean, or ellipsoid or atoms with arrays; got {self.kind!r}")


def margins_at(subject: Subject, graph: Graph, points: Array) -> Margins | None:
    """Return the readout's margins at these points; for a head without one, how well its states are told apart."""
    margins = separation_margins if subject.weight is None else readout_margins
    return margins(subject, graph, points)
