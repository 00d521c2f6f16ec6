"""Holds a native Hugging Face model, and a sidecar that adds a rational head to pretrained decoders.

Importing this package registers the model with the Auto classes.
"""

from __future__ import annotations

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from transductor.integrations.huggingface.configuration import RationalTransductorConfig
from transductor.integrations.huggingface.conversion import from_transductor, to_transductor
from transductor.integrations.huggingface.host_models import HOSTS, UnsupportedHost
from transductor.integrations.huggingface.modeling import (
    RationalTransductorForCausalLM,
    RationalTransductorForSequenceClassification,
    RationalTransductorForTokenClassification,
    RationalTransductorModel,
    RationalTransductorPreTrainedModel,
)
from transductor.integrations.huggingface.pattern_mask import PatternMask
from transductor.integrations.huggingface.pattern_monitor import PatternMonitor
from transductor.integrations.huggingface.sidecar import Sidecar, attach, detach, head_for, sidecar_of
from transductor.integrations.huggingface.sidecar_storage import load_sidecar, save_sidecar
from transductor.integrations.huggingface.tabulation import tabulate
from transductor.integrations.huggingface.token_automata import TokenAutomaton, compile_for_tokens, spelling_classes
from transductor.integrations.huggingface.token_patterns import TokenPattern
from transductor.integrations.huggingface.token_vocabulary import TokenVocabulary

__all__ = [
    "HOSTS",
    "PatternMask",
    "PatternMonitor",
    "RationalTransductorConfig",
    "RationalTransductorForCausalLM",
    "RationalTransductorForSequenceClassification",
    "RationalTransductorForTokenClassification",
    "RationalTransductorModel",
    "RationalTransductorPreTrainedModel",
    "Sidecar",
    "TokenAutomaton",
    "TokenPattern",
    "TokenVocabulary",
    "UnsupportedHost",
    "attach",
    "compile_for_tokens",
    "detach",
    "from_transductor",
    "head_for",
    "load_sidecar",
    "save_sidecar",
    "sidecar_of",
    "spelling_classes",
    "tabulate",
    "to_transductor",
]

AutoConfig.register(RationalTransductorConfig.model_type, RationalTransductorConfig, exist_ok=True)
for _auto, _model in (
    (AutoModel, RationalTransductorModel),
    (AutoModelForCausalLM, RationalTransductorForCausalLM),
    (AutoModelForTokenClassification, RationalTransductorForTokenClassification),
    (AutoModelForSequenceClassification, RationalTransductorForSequenceClassification),
):
    _auto.register(RationalTransductorConfig, _model, exist_ok=True)
