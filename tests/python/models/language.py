"""Small transformers models from configurations alone (no download), with inputs for one training step of each."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch

from parity import integers, seeded

os.environ.setdefault("HF_HUB_OFFLINE", "1")

VOCABULARY = 61


@dataclass
class Case:
    """A model and the keyword arguments of its forward, labels included; all of it on the CPU."""

    build: Callable[[], torch.nn.Module]
    inputs: Callable[[], dict[str, torch.Tensor]]

    def __call__(self, device: str, seed: int = 0, dtype: torch.dtype = torch.float32):
        """The model on `device` with seeded weights, and its inputs there."""
        torch.manual_seed(seed)
        model = self.build().to(dtype).to(device)
        inputs = {
            name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in self.inputs().items()
        }
        return model, {name: tensor.to(device) for name, tensor in inputs.items()}


def padding_mask(batch: int, length: int) -> torch.Tensor:
    """Ones, and zeros at the end of every row but the first."""
    lengths = torch.tensor([length] + [length - 2 - i for i in range(batch - 1)])
    return (torch.arange(length) < lengths[:, None]).long()


def tokens(shape, seed: int = 0) -> torch.Tensor:
    return integers(VOCABULARY, shape, seed, low=3)


def bert(attention: str) -> Case:
    import transformers

    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=24, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        attn_implementation=attention,
    )  # fmt: skip
    inputs = lambda: {  # noqa: E731
        "input_ids": tokens((3, 10)),
        "attention_mask": padding_mask(3, 10),
        "token_type_ids": integers(2, (3, 10), 2),
        "labels": tokens((3, 10), 3),
    }
    return Case(lambda: transformers.BertForMaskedLM(config), inputs)


def gpt2(attention: str) -> Case:
    import transformers

    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, attn_implementation=attention,
    )  # fmt: skip
    inputs = lambda: {  # noqa: E731
        "input_ids": tokens((2, 9)),
        "attention_mask": padding_mask(2, 9),
        "labels": tokens((2, 9), 1),
    }
    return Case(lambda: transformers.GPT2LMHeadModel(config), inputs)


def vit(attention: str) -> Case:
    import transformers

    config = transformers.ViTConfig(
        image_size=16, patch_size=4, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=5, attn_implementation=attention,
    )  # fmt: skip
    inputs = lambda: {"pixel_values": seeded((2, 3, 16, 16)), "labels": integers(5, (2,))}  # noqa: E731
    return Case(lambda: transformers.ViTForImageClassification(config), inputs)


def whisper(attention: str) -> Case:
    import transformers

    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
        max_source_positions=20, max_target_positions=24, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None, dropout=0.0,
        attn_implementation=attention,
    )  # fmt: skip
    inputs = lambda: {"input_features": seeded((2, 8, 40)), "labels": tokens((2, 7))}  # noqa: E731
    return Case(lambda: transformers.WhisperForConditionalGeneration(config), inputs)


def mamba(attention: str = "") -> Case:
    import transformers

    config = transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=24, state_size=4, num_hidden_layers=2, time_step_rank=3, pad_token_id=0,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    inputs = lambda: {"input_ids": tokens((2, 9)), "labels": tokens((2, 9), 1)}  # noqa: E731
    return Case(lambda: transformers.MambaForCausalLM(config), inputs)


def t5(attention: str) -> Case:
    import transformers

    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, dropout_rate=0.0,
        feed_forward_proj="gated-gelu", decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
        attn_implementation=attention,
    )  # fmt: skip
    inputs = lambda: {  # noqa: E731
        "input_ids": tokens((2, 9)),
        "attention_mask": padding_mask(2, 9),
        "labels": tokens((2, 6), 1),
    }
    return Case(lambda: transformers.T5ForConditionalGeneration(config), inputs)


FAMILIES = {"bert": bert, "gpt2": gpt2, "vit": vit, "whisper": whisper, "mamba": mamba, "t5": t5}
