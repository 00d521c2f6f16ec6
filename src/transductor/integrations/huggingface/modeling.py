"""The Rational Transductor as a Hugging Face model: the core's own modules, Hugging Face's attention and caches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache
from transformers.generation import GenerationMixin
from transformers.modeling_layers import GenericForTokenClassification
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    CausalLMOutputWithPast,
    SequenceClassifierOutputWithPast,
)
from transformers.utils import can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from transductor.configuration import from_plain, to_plain
from transductor.heads import build_head
from transductor.integrations.huggingface.attention import HostedAttention, Placement
from transductor.integrations.huggingface.configuration import RationalTransductorConfig
from transductor.integrations.huggingface.head_states import real_tokens, refuse_pages, stream_states
from transductor.integrations.huggingface.resizing import check_resizable, with_vocabulary
from transductor.integrations.huggingface.state_layers import state_layer
from transductor.model import RationalTransductor
from transductor.model.attention import Attend
from transductor.model.backbone import Block
from transductor.model.positions import Positions, build_positions
from transductor.model.token_positions import TokenPositions


class RationalTransductorPreTrainedModel(PreTrainedModel):  # type: ignore[misc]
    """What all of these models tell Hugging Face about themselves."""

    config: RationalTransductorConfig
    config_class = RationalTransductorConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules: ClassVar[list[str]] = ["Block"]
    _skip_keys_device_placement: ClassVar[list[str]] = ["past_key_values"]
    _keep_in_fp32_modules_strict: ClassVar[list[str]] = ["rational_head"]
    _supports_sdpa = True
    _can_compile_fullgraph = True
    _can_record_outputs: ClassVar[dict[str, Any]] = {"hidden_states": Block, "attentions": HostedAttention}

    @property
    def dtype(self) -> torch.dtype:
        """Of the stream; the head keeps float32 in a model of half precision."""
        weight: Tensor = self.get_input_embeddings().weight
        return weight.dtype

    def resize_token_embeddings(self, *arguments: Any, **options: Any) -> nn.Embedding:
        """As in Hugging Face; the head gets a transition for every new token."""
        core: RationalTransductor = self.base_model.core
        if arguments or options:
            check_resizable(core.rational_head)
        embedding: nn.Embedding = super().resize_token_embeddings(*arguments, **options)
        if embedding.num_embeddings != core.rational_head.transitions.vocab_size:
            core.rational_head = with_vocabulary(core.rational_head, embedding.num_embeddings)
            core.backbone.config = replace(core.backbone.config, vocab_size=embedding.num_embeddings)
            self.config.head = to_plain(core.rational_head.config)
        return embedding

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Values for a module whose own a checkpoint does not hold: what its constructor gives."""
        reset = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()

    @classmethod
    def from_pretrained(cls, *arguments: Any, **options: Any) -> Any:
        """As in Hugging Face; parameters that did not train when they were saved do not train either."""
        loaded = super().from_pretrained(*arguments, **options)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        model.base_model.freeze()
        return loaded


class RationalTransductorModel(RationalTransductorPreTrainedModel):
    """Tokens ``(B, T)`` to hidden states ``(B, T, hidden_size)``.

    ``core`` is a :class:`~transductor.RationalTransductor` without its readout.
    """

    def __init__(self, config: RationalTransductorConfig) -> None:
        super().__init__(config)
        # One logit, which is dropped at once: the readout belongs to the models around this one.
        described = config.transductor_config(output_size=1)
        ambient = torch.get_default_device()
        with torch.device("cpu" if ambient.type == "meta" else ambient):
            # Some families look at their numbers while they are built, so a head is never built without any.
            head = build_head(described.head)
        head = head.to(ambient).to(torch.promote_types(torch.get_default_dtype(), torch.float32))
        self.core = RationalTransductor(head, described.backbone, injection=described.injection)
        self.core.backbone.readout = nn.Identity()  # type: ignore[assignment]
        self.attends = nn.ModuleList(HostedAttention(config, layer) for layer in range(config.num_hidden_layers))
        self.gradient_checkpointing = False
        self._has_values = ambient.type != "meta"
        self.freeze()
        self.post_init()

    def freeze(self) -> None:
        """Let the parameters that the configuration names not train."""
        for name in self.config.frozen_parameters:
            self.core.get_parameter(name).requires_grad_(False)

    def get_input_embeddings(self) -> nn.Module:
        """The token embedding."""
        return self.core.backbone.embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embedding."""
        self.core.backbone.embedding = cast(nn.Embedding, value)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """What the constructors of the core give, for what a checkpoint does not hold."""
        name = next((name for name, part in self.core.named_modules() if part is module), None)
        if name is None:
            super()._init_weights(module)
            return
        if self._has_values:
            return
        config = self.config
        special: dict[str, Callable[[], nn.Module]] = {
            "rational_head": lambda: build_head(from_plain(config.head)),
            "backbone.positions": lambda: build_positions(
                from_plain(config.positions), config.hidden_size, config.num_attention_heads
            ),
        }
        for room, fresh in special.items():
            if name == room or name.startswith(f"{room}."):
                twin = fresh().get_submodule(name[len(room) + 1 :])
                for key, value in (*twin.named_parameters(recurse=False), *twin.named_buffers(recurse=False)):
                    init.copy_(getattr(module, key), value)
                return
        super()._init_weights(module)

    @merge_with_config_defaults  # type: ignore[untyped-decorator]
    @capture_outputs  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Any = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        cu_seq_lens_q: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """Hidden states after the last norm, and the cache.

        Args:
            input_ids: Tokens ``(B, T)``; always needed, the head's transitions are those of tokens.
            attention_mask: ``(B, past + T)``, nonzero for real tokens; or a mask of scores as ``generate`` makes it.
            position_ids: ``(B, T)``.  Without mask and cache, a document begins wherever they do not go up by one.
            past_key_values: Keys, values and states of the past.
            inputs_embeds: Refused.
            use_cache: Whether to return a cache; packed documents have none.
            cu_seq_lens_q: Boundaries of documents packed into one row.
            kwargs: Other options of Hugging Face models.
        """
        if input_ids is None or inputs_embeds is not None:
            raise ValueError("give input_ids and not inputs_embeds: the transitions of the head are those of tokens")
        refuse_pages(kwargs)
        if kwargs.get("is_causal") is False:
            raise ValueError("is_causal must not be False: the states of the head know the past alone")
        placement = Placement.of(
            self.config, input_ids, attention_mask, position_ids, past_key_values, cu_seq_lens_q, self.dtype
        )
        if use_cache and past_key_values is None and not placement.packed:
            past_key_values = DynamicCache(config=self.config)
        core = self.core
        states = stream_states(
            core.rational_head,
            input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cu_seqlens=cu_seq_lens_q,
            cache=past_key_values,
            layers=0 if self.config.attention == "none" else self.config.num_hidden_layers,
        )
        if past_key_values is not None and self.config.attention == "none":
            # Nobody else would fill the other layers: the states are the whole cache.
            past_key_values.layers[:] = [state_layer(past_key_values, 0)]
        inject = core.injection.into(states)
        stream = core.backbone.embedded(input_ids, placement.token_positions)
        for layer, block in enumerate(core.backbone.blocks):
            stream = inject(layer, stream)
            host = cast(HostedAttention, self.attends[layer])
            attend = partial(host.attend, placement, core.backbone.positions, past_key_values)
            run = partial(_run_block, block, placement.token_positions, core.backbone.positions, attend)
            if self.gradient_checkpointing and self.training:
                stream = self._gradient_checkpointing_func(run, stream)
            else:
                stream = run(stream)
        return BaseModelOutputWithPast(
            last_hidden_state=core.backbone.final_norm(stream), past_key_values=past_key_values
        )


def _run_block(
    block: nn.Module, token_positions: TokenPositions, scheme: Positions, attend: Attend, stream: Tensor
) -> Tensor:
    after: Tensor = block(stream, token_positions, scheme, None, attend)[0]
    return after


class RationalTransductorForCausalLM(RationalTransductorPreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """Logits for the next token ``(B, T, vocab_size)``."""

    _tied_weights_keys: ClassVar[dict[str, str]] = {"lm_head.weight": "model.core.backbone.embedding.weight"}

    def __init__(self, config: RationalTransductorConfig) -> None:
        super().__init__(config)
        self.model = RationalTransductorModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        """What reads logits off."""
        return self.lm_head

    def set_output_embeddings(self, value: nn.Module) -> None:
        """Replace what reads logits off."""
        self.lm_head = cast(nn.Linear, value)

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Any = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """See :class:`RationalTransductorModel`.

        Args:
            input_ids: Tokens ``(B, T)``.
            attention_mask: Which of them are real.
            position_ids: Where they stand.
            past_key_values: The cache.
            inputs_embeds: Refused.
            labels: ``(B, T)``: the tokens themselves, they are shifted here; −100 counts not.
            use_cache: Whether to return a cache.
            logits_to_keep: How many of the last positions get logits, or which ones; 0 for all.
            kwargs: Other options of Hugging Face models.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, kept])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class RationalTransductorForTokenClassification(GenericForTokenClassification, RationalTransductorPreTrainedModel):  # type: ignore[misc]
    """Scores for every token ``(B, T, num_labels)``."""


class RationalTransductorForSequenceClassification(RationalTransductorPreTrainedModel):
    """Scores for every row ``(B, num_labels)``, read off at its last real token."""

    def __init__(self, config: RationalTransductorConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = RationalTransductorModel(config)
        self.score = nn.Linear(config.hidden_size, config.num_labels, bias=False)
        self.post_init()

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Any = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutputWithPast:
        """See :class:`RationalTransductorModel`.

        Args:
            input_ids: Tokens ``(B, T)``.
            attention_mask: Which of them are real; without it, those that are not ``pad_token_id``.
            position_ids: Where they stand.
            past_key_values: The cache.
            inputs_embeds: Refused.
            labels: ``(B)`` classes or numbers, or ``(B, num_labels)`` of either; see ``config.problem_type``.
            use_cache: Whether to return a cache.
            kwargs: Other options of Hugging Face models.
        """
        if attention_mask is None and self.config.pad_token_id is not None and input_ids is not None:
            attention_mask = (input_ids != self.config.pad_token_id).long()
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        hidden = outputs.last_hidden_state
        rows, time = hidden.shape[:2]
        past = 0 if outputs.past_key_values is None else outputs.past_key_values.get_seq_length() - time
        real = real_tokens(attention_mask, time, past)
        last = torch.full((rows,), time - 1, device=hidden.device)
        if real is not None:
            last = (real.long() * torch.arange(1, time + 1, device=hidden.device)).amax(1).sub(1).clamp_min(0)
        scores = self.score(hidden[torch.arange(rows, device=hidden.device), last])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=scores, labels=labels, pooled_logits=scores, config=self.config)
        return SequenceClassifierOutputWithPast(
            loss=loss,
            logits=scores,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )
