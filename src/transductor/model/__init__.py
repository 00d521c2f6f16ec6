"""Models that turn tokens into logits: the Rational Transductor, stacks, a readout alone, the baselines."""

from transductor.model.attention import AttentionKind, FullAttention, NoAttention, SlidingWindow
from transductor.model.backbone import BackboneConfig, BackboneState
from transductor.model.base import SequenceModel
from transductor.model.bundle import CheckpointError
from transductor.model.diagnostics import ScoreTerms, interaction_matrices, score_terms
from transductor.model.filter_readout import FilterReadout, FilterReadoutConfig
from transductor.model.guided import GuidedConfig, GuidedState, GuidedTransformer
from transductor.model.linear_rnn import LinearRNN, LinearRNNConfig, LinearRNNState
from transductor.model.linear_stack import LinearStack, LinearStackConfig, LinearStackState
from transductor.model.lstm import LSTM, LSTMConfig, LSTMState
from transductor.model.positions import (
    LearnedPositions,
    NoPositions,
    PositionScheme,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
)
from transductor.model.rational_readout import RationalReadout, ReadoutConfig, ReadoutState
from transductor.model.stacked import StackedConfig, StackedState, StackedTransductor
from transductor.model.storage import build, checkpoint_identity, letters_of, load, save
from transductor.model.transductor import RationalTransductor, TransductorConfig, TransductorState
from transductor.model.transformer import Transformer

__all__ = [
    "LSTM",
    "AttentionKind",
    "BackboneConfig",
    "BackboneState",
    "CheckpointError",
    "FilterReadout",
    "FilterReadoutConfig",
    "FullAttention",
    "GuidedConfig",
    "GuidedState",
    "GuidedTransformer",
    "LSTMConfig",
    "LSTMState",
    "LearnedPositions",
    "LinearRNN",
    "LinearRNNConfig",
    "LinearRNNState",
    "LinearStack",
    "LinearStackConfig",
    "LinearStackState",
    "NoAttention",
    "NoPositions",
    "PositionScheme",
    "RationalReadout",
    "RationalTransductor",
    "ReadoutConfig",
    "ReadoutState",
    "RelativePositions",
    "RotaryPositions",
    "ScoreTerms",
    "SequenceModel",
    "SinusoidalPositions",
    "SlidingWindow",
    "StackedConfig",
    "StackedState",
    "StackedTransductor",
    "TransductorConfig",
    "TransductorState",
    "Transformer",
    "build",
    "checkpoint_identity",
    "interaction_matrices",
    "letters_of",
    "load",
    "save",
    "score_terms",
]
