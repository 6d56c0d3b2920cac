"""Language models: training, generation, experts, state spaces, encoder-decoder. Classes of transformers."""

from __future__ import annotations

import torch
import transformers

from tests.zoo.program import device, train

VOCABULARY = 128


def tokens(n_rows: int = 2, length: int = 16) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (n_rows, length), device=device())


def llama() -> transformers.LlamaForCausalLM:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
    )
    return transformers.LlamaForCausalLM(config).to(device())


def llm_generation_static_cache() -> list[torch.Tensor]:
    model = llama().eval()
    ids = tokens(2, 6)
    mask = torch.ones_like(ids)
    mask[0, :2] = 0
    return [
        model.generate(
            ids, attention_mask=mask, max_new_tokens=4, do_sample=False, cache_implementation="static", pad_token_id=0
        )
    ]


def llm_beam_search() -> list[torch.Tensor]:
    model = llama().eval()
    return [model.generate(tokens(1, 6), max_new_tokens=4, num_beams=3, do_sample=False, pad_token_id=0)]


def llm_checkpointed() -> list[torch.Tensor]:
    model, ids = llama(), tokens()
    model.gradient_checkpointing_enable()
    return train(model, lambda: model(ids, labels=ids).loss)


def gpt2_dropout_training() -> list[torch.Tensor]:
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=2)
    model, ids = transformers.GPT2LMHeadModel(config).to(device()), tokens()
    return train(model, lambda: model(ids, labels=ids).loss)


def moe_mixtral_training() -> list[torch.Tensor]:
    config = transformers.MixtralConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        output_router_logits=True,
    )
    model, ids = transformers.MixtralForCausalLM(config).to(device()), tokens()
    return train(model, lambda: model(ids, labels=ids).loss)


def moe_qwen_inference() -> list[torch.Tensor]:
    config = transformers.Qwen3MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        moe_intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
    )
    model = transformers.Qwen3MoeForCausalLM(config).to(device()).eval()
    with torch.no_grad():
        return [model(tokens()).logits]


def state_space_mamba_training() -> list[torch.Tensor]:
    config = transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=32, state_size=8, num_hidden_layers=2, expand=2, conv_kernel=4
    )
    model, ids = transformers.MambaForCausalLM(config).to(device()), tokens(2, 12)
    return train(model, lambda: model(ids, labels=ids).loss)


def state_space_mamba2_generation() -> list[torch.Tensor]:
    config = transformers.Mamba2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        state_size=16,
        num_hidden_layers=2,
        num_heads=8,
        head_dim=8,
        n_groups=2,
        chunk_size=8,
    )
    model = transformers.Mamba2ForCausalLM(config).to(device()).eval()
    return [model.generate(tokens(1, 6), max_new_tokens=3, do_sample=False, pad_token_id=0)]


def encoder_decoder_bart_generation() -> list[torch.Tensor]:
    config = transformers.BartConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        forced_eos_token_id=2,
    )
    model = transformers.BartForConditionalGeneration(config).to(device()).eval()
    return [model.generate(tokens(2, 8), max_new_tokens=4, num_beams=1, do_sample=False)]
