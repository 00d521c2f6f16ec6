"""The Rational Transductor as a Hugging Face model: our modules with Hugging Face's attention kernels and caches."""

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
from transformers.utils import ModelOutput, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from transductor.configuration import from_plain, to_plain
from transductor.heads import build_head
from transductor.integrations.huggingface.attention import AttentionInputs, HuggingFaceAttention
from transductor.integrations.huggingface.configuration import RationalTransductorConfig
from transductor.integrations.huggingface.head_states import compute_states, real_tokens, refuse_paged_cache
from transductor.integrations.huggingface.resizing import resized_config, with_vocabulary
from transductor.integrations.huggingface.state_layers import state_layer
from transductor.model import RationalTransductor
from transductor.model.attention import CausalAttention
from transductor.model.backbone import Block
from transductor.model.positions import build_positions


class RationalTransductorPreTrainedModel(PreTrainedModel):  # type: ignore[misc]
    """The settings and methods that all Rational Transductor models share."""

    config: RationalTransductorConfig
    config_class = RationalTransductorConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules: ClassVar[list[str]] = ["Block"]
    _skip_keys_device_placement: ClassVar[list[str]] = ["past_key_values"]
    _keep_in_fp32_modules_strict: ClassVar[list[str]] = ["rational_head"]
    _supports_sdpa = True
    _can_compile_fullgraph = True
    _can_record_outputs: ClassVar[dict[str, Any]] = {"hidden_states": Block, "attentions": HuggingFaceAttention}

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the stream; the head keeps float32 in a model of half precision."""
        return cast(nn.Embedding, self.get_input_embeddings()).weight.dtype

    def resize_token_embeddings(self, *arguments: Any, **options: Any) -> nn.Embedding:
        """Resize as Hugging Face does, and give the head a transition for every new token."""
        core: RationalTransductor = self.base_model.core
        if arguments or options:
            resized_config(core.rational_head, 1)  # refuses a head that cannot be resized before anything changes
        embedding: nn.Embedding = super().resize_token_embeddings(*arguments, **options)
        if embedding.num_embeddings != core.rational_head.transitions.vocab_size:
            core.rational_head = with_vocabulary(core.rational_head, embedding.num_embeddings)
            core.backbone.config = replace(core.backbone.config, vocab_size=embedding.num_embeddings)
            self.config.head = to_plain(core.rational_head.config)
        return embedding

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Give a module that is missing from a checkpoint the values its constructor would give it."""
        reset = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()

    @classmethod
    def from_pretrained(cls, *arguments: Any, **options: Any) -> Any:
        """Load as Hugging Face does; parameters that were frozen when they were saved stay frozen."""
        loaded = super().from_pretrained(*arguments, **options)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        model.base_model.freeze()
        return loaded


class RationalTransductorModel(RationalTransductorPreTrainedModel):
    """The model that turns tokens ``(B, T)`` into hidden states ``(B, T, hidden_size)``.

    ``core`` is a :class:`~transductor.RationalTransductor` without its readout.
    """

    def __init__(self, config: RationalTransductorConfig) -> None:
        super().__init__(config)
        core_config = config.transductor_config(output_size=1)  # the readout is replaced below
        device = torch.get_default_device()
        with torch.device("cpu" if device.type == "meta" else device):
            # Some families read their numbers while they are built, so a head cannot be built on "meta".
            head = build_head(core_config.head)
        head = head.to(device).to(torch.promote_types(torch.get_default_dtype(), torch.float32))
        self.core = RationalTransductor(
            head, core_config.backbone, injection=core_config.injection, projections=core_config.projections
        )
        # The task models have readouts of their own.
        self.core.backbone.readout = nn.Identity()  # type: ignore[assignment]
        self.attends = nn.ModuleList(HuggingFaceAttention(config, layer) for layer in range(config.num_hidden_layers))
        self.gradient_checkpointing = False
        self._has_values = device.type != "meta"
        self.freeze()
        self.post_init()

    def freeze(self) -> None:
        """Freeze the parameters that the configuration names."""
        for name in self.config.frozen_parameters:
            self.core.get_parameter(name).requires_grad_(False)

    def get_input_embeddings(self) -> nn.Module:
        """Return the token embedding."""
        return self.core.backbone.embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embedding."""
        self.core.backbone.embedding = cast(nn.Embedding, value)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Give a module of the core the values its constructor would give it, where a checkpoint has none."""
        name = next((name for name, part in self.core.named_modules() if part is module), None)
        if name is None:
            super()._init_weights(module)
            return
        if self._has_values:
            return
        config = self.config
        rebuilt: dict[str, Callable[[], nn.Module]] = {
            "rational_head": lambda: build_head(from_plain(config.head)),
            "backbone.positions": lambda: build_positions(
                from_plain(config.positions), config.hidden_size, config.num_attention_heads
            ),
        }
        for prefix, build in rebuilt.items():
            if name == prefix or name.startswith(f"{prefix}."):
                fresh = build().get_submodule(name[len(prefix) + 1 :])
                for key, value in (*fresh.named_parameters(recurse=False), *fresh.named_buffers(recurse=False)):
                    init.copy_(getattr(module, key), value)
                return
        super()._init_weights(module)
        if name == "injection.projections" and config.projections == "zero":
            init.zeros_(module.weight)

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
        """Return the hidden states after the last norm, and the cache.

        Args:
            input_ids: Tokens ``(B, T)``; required, because the head has one transition per token.
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
        refuse_paged_cache(kwargs)
        if kwargs.get("is_causal") is False:
            raise ValueError("is_causal must not be False: the states of the head know the past alone")
        inputs = AttentionInputs.of(
            self.config, input_ids, attention_mask, position_ids, past_key_values, cu_seq_lens_q, self.dtype
        )
        if use_cache and past_key_values is None and not inputs.packed:
            past_key_values = DynamicCache(config=self.config)
        core, without_attention = self.core, self.config.attention == "none"
        states = compute_states(
            core.rational_head,
            input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cu_seqlens=cu_seq_lens_q,
            cache=past_key_values,
            layers=0 if without_attention else self.config.num_hidden_layers,
        )
        if past_key_values is not None and without_attention:
            # No layer has keys or values, so the states are the only layer of the cache.
            past_key_values.layers[:] = [state_layer(past_key_values, 0)]
        inject = core.injection.into(states)
        stream = core.backbone.embedded(input_ids, inputs.token_positions)
        for layer in range(len(core.backbone.blocks)):
            stream = inject(layer, stream)
            run = partial(self._run_block, layer, inputs, past_key_values)
            if self.gradient_checkpointing and self.training:
                stream = self._gradient_checkpointing_func(run, stream)
            else:
                stream = run(stream)
        return BaseModelOutputWithPast(
            last_hidden_state=core.backbone.final_norm(stream), past_key_values=past_key_values
        )

    def _run_block(self, layer: int, inputs: AttentionInputs, cache: Cache | None, stream: Tensor) -> Tensor:
        """Run one of our blocks with Hugging Face's attention instead of its own."""
        backbone, kernel = self.core.backbone, self.attends[layer]

        def attend(attention: CausalAttention, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            mixed: Tensor = kernel(queries, keys, values, inputs.mask, backbone.positions, cache, attention.scale())[0]
            return mixed

        after: Tensor = backbone.blocks[layer](stream, inputs.token_positions, backbone.positions, None, attend)[0]
        return after


class _TaskModel(RationalTransductorPreTrainedModel):
    """A base model, and the logits of a task computed from its hidden states."""

    model: RationalTransductorModel
    _output: ClassVar[type[ModelOutput]]
    _logits: Callable[[BaseModelOutputWithPast, Any, int | Tensor], Tensor]
    _loss: Callable[[Tensor, Tensor, dict[str, Any]], Tensor]

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
    ) -> ModelOutput:
        """Return logits, the loss if there are labels, and the cache; see :class:`RationalTransductorModel`.

        Args:
            input_ids: Tokens ``(B, T)``; see the base model for this and the following arguments.
            attention_mask: Which tokens are real; a sequence classifier without it masks ``pad_token_id``.
            position_ids: Positions of the tokens.
            past_key_values: The cache.
            inputs_embeds: Refused.
            labels: Of a language model the tokens ``(B, T)`` themselves, which are shifted here, with −100 at positions
                without a label.  Of a sequence classifier ``(B)`` classes or numbers, or ``(B, num_labels)`` of
                either; see ``config.problem_type``.
            use_cache: Whether to return a cache.
            logits_to_keep: How many of the last positions a language model gives logits for, or which; 0 for all.
            kwargs: Other options of Hugging Face models.
        """
        attention_mask = self._mask(input_ids, attention_mask)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        logits = self._logits(outputs, attention_mask, logits_to_keep)
        return self._output(
            loss=None if labels is None else self._loss(logits, labels, kwargs),
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def _mask(self, input_ids: Tensor | None, attention_mask: Any) -> Any:
        return attention_mask


class RationalTransductorForCausalLM(_TaskModel, GenerationMixin):  # type: ignore[misc]
    """A language model: logits for the next token, ``(B, T, vocab_size)``."""

    _tied_weights_keys: ClassVar[dict[str, str]] = {"lm_head.weight": "model.core.backbone.embedding.weight"}
    _output = CausalLMOutputWithPast

    def __init__(self, config: RationalTransductorConfig) -> None:
        super().__init__(config)
        self.model = RationalTransductorModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def _logits(self, outputs: BaseModelOutputWithPast, attention_mask: Any, kept: int | Tensor) -> Tensor:
        positions = slice(-kept, None) if isinstance(kept, int) else kept
        return cast(Tensor, self.lm_head(outputs.last_hidden_state[:, positions]))

    def _loss(self, logits: Tensor, labels: Tensor, options: dict[str, Any]) -> Tensor:
        loss: Tensor = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **options)
        return loss


class RationalTransductorForTokenClassification(GenericForTokenClassification, RationalTransductorPreTrainedModel):  # type: ignore[misc]
    """A classifier of tokens: logits ``(B, T, num_labels)``."""


class RationalTransductorForSequenceClassification(_TaskModel):
    """A classifier of rows: logits ``(B, num_labels)``, computed at the last real token of each row."""

    _output = SequenceClassifierOutputWithPast

    def __init__(self, config: RationalTransductorConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = RationalTransductorModel(config)
        self.score = nn.Linear(config.hidden_size, config.num_labels, bias=False)
        self.post_init()

    def _mask(self, input_ids: Tensor | None, attention_mask: Any) -> Any:
        if attention_mask is None and self.config.pad_token_id is not None and input_ids is not None:
            return (input_ids != self.config.pad_token_id).long()
        return attention_mask

    def _logits(self, outputs: BaseModelOutputWithPast, attention_mask: Any, kept: int | Tensor) -> Tensor:
        hidden = outputs.last_hidden_state
        rows, time = hidden.shape[:2]
        past = 0 if outputs.past_key_values is None else outputs.past_key_values.get_seq_length() - time
        real = real_tokens(attention_mask, time, past)
        last = torch.full((rows,), time - 1, device=hidden.device)
        if real is not None:
            last = (real.long() * torch.arange(1, time + 1, device=hidden.device)).amax(1).sub(1).clamp_min(0)
        return cast(Tensor, self.score(hidden[torch.arange(rows, device=hidden.device), last]))

    def _loss(self, logits: Tensor, labels: Tensor, options: dict[str, Any]) -> Tensor:
        loss: Tensor = self.loss_function(logits=logits, labels=labels, pooled_logits=logits, config=self.config)
        return loss
