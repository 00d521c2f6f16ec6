"""The model itself, asked about words: a refutation counts only where the model is really wrong."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transductor.certification.ball_arithmetic import Array
from transductor.certification.certificates import AgreementCertificate
from transductor.certification.replay import label_of
from transductor.certification.subjects import linear_of
from transductor.certification.verdicts import allowed_difference, right_label
from transductor.heads import RationalHead


@torch.no_grad()
def model_logits(model_or_head: Any, readout: Any, tokens: Array) -> Tensor:
    """Return the logits ``(B, T, K)`` of the model on its own device and in its own mode."""
    on_device = torch.from_numpy(tokens).to(next(model_or_head.parameters()).device)
    logits: Tensor = model_or_head(on_device)
    if not isinstance(model_or_head, RationalHead):
        return logits
    weight, bias = linear_of(readout)
    return torch.nn.functional.linear(logits.to(weight.dtype), weight, bias)


def model_labels(model_or_head: Any, readout: Any, tokens: Array) -> Array:
    """Return the labels ``(B, T)`` of the model: the argmax, or whether the only logit is positive."""
    logits = model_logits(model_or_head, readout, tokens)
    labels = logits[..., 0] > 0 if logits.shape[-1] == 1 else logits.argmax(-1)
    return labels.long().cpu().numpy()


def is_refuted(certificate: AgreementCertificate, model_or_head: Any, readout: Any = None) -> bool:
    """Return whether the model itself is wrong on the certificate's word."""
    question, word = certificate.question, certificate.word
    assert word is not None
    logits = model_logits(model_or_head, readout, np.array([word]))[0, -1].double().cpu().numpy()
    if question.series is None:
        return label_of(logits) != right_label(question, word)
    letters = [question.series.alphabet[token] for token in word]
    difference = abs(Fraction(float(logits[0])) - question.series.over("rational")(letters))
    return bool(difference > allowed_difference(question, word))
