"""Every program of the zoo, by what it stands for."""

from __future__ import annotations

from tests import architectures
from tests.zoo import graphs, language, memory, numerics, sequences, transforms, vision, workers
from tests.zoo.program import ZooProgram

_SPARSE = "not strided"
_PROCESS = "a process of its own"
_HOP = "higher-order op: run eagerly"
_FOREIGN = "not an aten op"
#: What forward mode and torch.func make of zero tangents.
_ZEROS = ("tensor without memory: zeros by definition", "primitive of torch's own decompositions")

PROGRAMS: tuple[ZooProgram, ...] = (
    ZooProgram(architectures.llama, "LLM training", ("transformers",), quick=True),
    ZooProgram(language.gpt2_dropout_training, "LLM training", ("transformers",)),
    ZooProgram(architectures.bert, "LLM training", ("transformers",)),
    ZooProgram(architectures.llama_generation, "generation with a KV cache", ("transformers",), quick=True),
    ZooProgram(language.llm_generation_static_cache, "generation with a KV cache", ("transformers",)),
    ZooProgram(language.llm_beam_search, "generation with a KV cache", ("transformers",)),
    ZooProgram(language.moe_mixtral_training, "mixture of experts", ("transformers",), quick=True),
    ZooProgram(language.moe_qwen_inference, "mixture of experts", ("transformers",)),
    ZooProgram(language.state_space_mamba_training, "state-space model", ("transformers",)),
    ZooProgram(language.state_space_mamba2_generation, "state-space model", ("transformers",)),
    ZooProgram(architectures.t5, "encoder-decoder", ("transformers",)),
    ZooProgram(language.encoder_decoder_bart_generation, "encoder-decoder", ("transformers",)),
    ZooProgram(architectures.whisper, "Whisper", ("transformers",)),
    ZooProgram(sequences.whisper_transcription, "Whisper", ("transformers",)),
    ZooProgram(vision.vit_inference_mode, "ViT under inference_mode", ("transformers",)),
    ZooProgram(vision.vit_no_grad, "ViT under no_grad", ("transformers",)),
    ZooProgram(vision.vit_grad, "ViT with gradients", ("transformers",)),
    ZooProgram(architectures.vit, "ViT with gradients", ("transformers",)),
    ZooProgram(
        vision.cnn_channels_last_fp16_autocast,
        "CNN, channels_last, fp16 autocast, GradScaler",
        ("transformers",),
        quick=True,
    ),
    ZooProgram(vision.cnn_depthwise_inference, "CNN, depthwise", ("transformers",)),
    ZooProgram(vision.segmentation_training, "segmentation", ("transformers",)),
    ZooProgram(vision.diffusion_unet_training, "diffusion UNet", ("diffusers",)),
    ZooProgram(vision.diffusion_unet_sampling, "diffusion UNet", ("diffusers",)),
    ZooProgram(sequences.wav2vec2_ctc_training, "CTC loss", ("transformers",)),
    ZooProgram(architectures.lstm_ctc, "LSTM, CTC loss", quick=True),
    ZooProgram(architectures.gru_packed, "GRU, packed sequences"),
    ZooProgram(sequences.lstm_packed_unsorted_projected, "LSTM, packed sequences"),
    ZooProgram(sequences.recurrent_cells, "recurrent cells, RNN"),
    ZooProgram(graphs.graph_network_training, "graph network", ("torch_geometric",)),
    ZooProgram(graphs.graph_scatter_training, "graph network, scatter", quick=True),
    ZooProgram(graphs.sparse_adjacency_training, "graph network, sparse tensors", unaudited=(_SPARSE,)),
    ZooProgram(graphs.embedding_bags_training, "embedding bags"),
    ZooProgram(graphs.sparse_embedding_training, "embedding bags, sparse gradients", unaudited=(_SPARSE,)),
    ZooProgram(architectures.encoder_fast_path, "encoder fast path", quick=True),
    ZooProgram(sequences.encoder_fast_path_padded, "encoder fast path, padding", unaudited=(_SPARSE,)),
    ZooProgram(sequences.nested_jagged_training, "nested (jagged) tensors", quick=True),
    ZooProgram(sequences.nested_jagged_attention, "nested (jagged) tensors, attention", unaudited=(_SPARSE,)),
    ZooProgram(numerics.quantised_dynamic_int8, "quantised int8", unaudited=(_SPARSE, _FOREIGN)),
    ZooProgram(numerics.quantised_int8_matmul, "quantised int8"),
    ZooProgram(numerics.quantised_fake_training, "quantisation-aware training"),
    ZooProgram(numerics.torchao_int8_weight_only, "torchao subclasses", ("torchao",)),
    ZooProgram(numerics.torchao_int8_dynamic, "torchao subclasses", ("torchao",)),
    ZooProgram(numerics.fp8_scaled_mm, "fp8 _scaled_mm"),
    ZooProgram(numerics.complex_fourier_operator_training, "complex and FFT"),
    ZooProgram(numerics.complex_and_fft, "complex and FFT"),
    ZooProgram(numerics.linear_algebra, "linalg"),
    ZooProgram(numerics.optimizers_foreach_and_fused, "foreach and fused optimizers", quick=True),
    ZooProgram(language.llm_checkpointed, "activation checkpointing", ("transformers",)),
    ZooProgram(transforms.activation_checkpointing, "activation checkpointing", quick=True),
    ZooProgram(transforms.func_grad_and_vmap, "torch.func: grad, vmap", quick=True, unaudited=_ZEROS),
    ZooProgram(transforms.func_forward_mode, "torch.func: jvp", unaudited=_ZEROS),
    ZooProgram(transforms.func_vmap_of_composites, "torch.func: vmap of composites"),
    ZooProgram(transforms.compiled_training, "torch.compile"),
    ZooProgram(transforms.flex_attention_inference, "flex_attention", unaudited=(_HOP,)),
    ZooProgram(transforms.control_flow_ops, "other higher-order ops", unaudited=(_HOP,)),
    ZooProgram(transforms.custom_library_op, "custom ops by torch.library", unaudited=("custom op: its code is not",)),
    ZooProgram(transforms.custom_autograd_function, "custom autograd.Function"),
    ZooProgram(transforms.double_backward, "double backward, hooks"),
    ZooProgram(
        workers.dataloader_workers, "dataloader workers", unaudited=(_PROCESS, "argument of type UntypedStorage")
    ),
    ZooProgram(workers.threads, "threads"),
    ZooProgram(memory.views_written_in_place, "in-place on views", quick=True),
    ZooProgram(memory.empty_and_scalar_tensors, "zero-size and 0-dim tensors"),
    ZooProgram(memory.data_dependent_shapes, "data-dependent shapes"),
    ZooProgram(memory.pinned_memory_copies, "pinned memory"),
    ZooProgram(memory.generators, "Generator arguments"),
    ZooProgram(memory.scalars_on_the_host, "0-dim CPU tensors beside device tensors"),
    ZooProgram(memory.random_losses, "losses and activations"),
)


def find(name: str) -> ZooProgram:
    """The program of that name. Raises KeyError with the names that there are."""
    by_name = {program.name: program for program in PROGRAMS}
    if name not in by_name:
        raise KeyError(f"no program {name!r}; there are {', '.join(by_name)}")
    return by_name[name]
