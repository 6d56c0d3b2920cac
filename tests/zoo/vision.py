"""Pictures: ViT in three gradient modes, a CNN under fp16 autocast, a diffusion UNet."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
import transformers
from torch import nn

from tests.zoo.program import device, gradients, state, train


def vit() -> transformers.ViTForImageClassification:
    config = transformers.ViTConfig(
        image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    return transformers.ViTForImageClassification(config).to(device())


def _vit_logits(mode: AbstractContextManager[object]) -> list[torch.Tensor]:
    model, pixels = vit().eval(), torch.randn(2, 3, 32, 32, device=device())
    with mode:
        logits = model(pixels).logits
    return [logits.detach().clone()]


def vit_inference_mode() -> list[torch.Tensor]:
    return _vit_logits(torch.inference_mode())


def vit_no_grad() -> list[torch.Tensor]:
    return _vit_logits(torch.no_grad())


def vit_grad() -> list[torch.Tensor]:
    return _vit_logits(torch.enable_grad())


def _resnet() -> transformers.ResNetForImageClassification:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", num_labels=4
    )
    return transformers.ResNetForImageClassification(config).to(device(), memory_format=torch.channels_last)


def cnn_channels_last_fp16_autocast() -> list[torch.Tensor]:
    model = _resnet()
    images = torch.randn(4, 3, 32, 32, device=device()).to(memory_format=torch.channels_last)
    labels = torch.arange(4, device=device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler(device(), init_scale=1024.0)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        with torch.autocast(device(), dtype=torch.float16):
            loss = model(images, labels=labels).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach().clone())
    return [*losses, *gradients(model), *state(model)]


def cnn_depthwise_inference() -> list[torch.Tensor]:
    config = transformers.MobileNetV2Config(image_size=32, depth_multiplier=0.35, min_depth=8, num_labels=4)
    model = transformers.MobileNetV2ForImageClassification(config).to(device()).eval()
    with torch.inference_mode():
        return [model(torch.randn(2, 3, 32, 32, device=device())).logits.clone()]


def segmentation_training() -> list[torch.Tensor]:
    config = transformers.SegformerConfig(
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[16, 32],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=16,
        num_labels=3,
    )
    model = transformers.SegformerForSemanticSegmentation(config).to(device())
    pixels = torch.randn(1, 3, 32, 32, device=device())
    labels = torch.randint(0, 3, (1, 32, 32), device=device())
    return train(model, lambda: model(pixels, labels=labels).loss)


def diffusion_unet_training() -> list[torch.Tensor]:
    import diffusers

    model = diffusers.UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(16, 32),
        norm_num_groups=4,
        cross_attention_dim=16,
        attention_head_dim=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    ).to(device())
    scheduler = diffusers.DDPMScheduler(num_train_timesteps=50)
    clean, text = torch.randn(2, 4, 8, 8, device=device()), torch.randn(2, 5, 16, device=device())
    noise = torch.randn_like(clean)
    steps = torch.tensor([3, 40], device=device())

    def forward() -> torch.Tensor:
        noisy = scheduler.add_noise(clean, noise, steps)
        predicted = model(noisy, steps, encoder_hidden_states=text).sample
        return nn.functional.mse_loss(predicted, noise)

    return train(model, forward)


def diffusion_unet_sampling() -> list[torch.Tensor]:
    import diffusers

    model = diffusers.UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    ).to(device())
    pipeline = diffusers.DDPMPipeline(unet=model.eval(), scheduler=diffusers.DDPMScheduler(num_train_timesteps=20))
    pipeline.set_progress_bar_config(disable=True)
    generator = torch.Generator("cpu").manual_seed(3)
    images = pipeline(batch_size=1, generator=generator, num_inference_steps=2, output_type="np").images
    return [torch.from_numpy(images).clone()]
