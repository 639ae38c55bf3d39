"""What may go wrong with the control plane and the objects of diskless topics."""

from quipu.model.errors import Code, ErrorKind, QuipuError


class ControlPlaneUnavailable(QuipuError):
    """The control plane could not be asked: nothing was changed."""

    kind = ErrorKind.RETRY
    code = Code.KAFKA_STORAGE_ERROR


class CommitOutcomeUnknown(ControlPlaneUnavailable):
    """The control plane did not say whether it carried out a change: ask again, the same way."""


class ControlPlaneClosed(ControlPlaneUnavailable):
    """The control plane is closed, because the node stops."""


class FencedObject(ControlPlaneUnavailable):
    """The key of an object was given up, so it cannot be committed: nothing was changed."""


class UnusableControlPlane(QuipuError):
    """What the control plane has stored is damaged, or of a version that is not known here."""

    kind = ErrorKind.CORRUPT
    code = Code.KAFKA_STORAGE_ERROR


class ForeignControlPlane(QuipuError):
    """The control plane belongs to another cluster, whose records it must keep."""

    kind = ErrorKind.RETRY
    code = Code.KAFKA_STORAGE_ERROR


class CorruptObject(QuipuError):
    """The bytes of an object are not those that were written."""

    kind = ErrorKind.INVALID
    code = Code.CORRUPT_MESSAGE


class ControlPlaneNotEmpty(QuipuError):
    """A control plane that is to be rebuilt has objects or records already."""

    kind = ErrorKind.INVALID
    code = Code.INVALID_REQUEST


class ForeignObjects(QuipuError):
    """The objects of a store are of topics that a cluster does not have."""

    kind = ErrorKind.INVALID
    code = Code.INVALID_REQUEST


class ControlPlaneChanged(QuipuError):
    """A control plane was changed by others while it was rebuilt: begin again with an empty one."""

    kind = ErrorKind.INVALID
    code = Code.INVALID_REQUEST
