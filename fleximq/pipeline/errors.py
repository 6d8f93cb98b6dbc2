"""What can go wrong in the pipeline; the text of each error is one sentence for whoever started the query."""


class PipelineError(Exception):
    """The base of the pipeline's own errors. They are told across processes, so each can be pickled."""


class BrokerGone(PipelineError):
    """The broker could not be reached, or went away, for as long as it may take."""


class BrokerRefused(PipelineError):
    """The broker does not let the pipeline in, or will not do what it was asked."""


class TooLarge(BrokerRefused):
    """The broker takes no message as large as what it was told."""


class NotJournalled(PipelineError):
    """The broker has no journal, and what was asked for needs one."""


class RowRefused(PipelineError):
    """A row cannot be published as it is."""


class OptionRefused(PipelineError):
    """An option is missing, or has a value it cannot have."""


class LakeRefused(PipelineError):
    """A table of the lake cannot be read or written, or is not what it should be."""
