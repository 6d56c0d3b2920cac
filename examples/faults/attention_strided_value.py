"""ROCm/pytorch#3230: fused attention was wrong by 2 to 3 where the value tensor was a transposed view.

Query and key were contiguous; `.contiguous()` on the value cured it. Only a replay with the program's own strides
sees it. Expect: divergent.
"""


def reads_value_as_contiguous(call):
    query, key, value, *rest = call.args
    if not value.is_contiguous():
        value = value.as_strided(value.shape, value.new_empty(value.shape).stride(), value.storage_offset())
    return call.run(query, key, value, *rest, **call.kwargs)


FAULTS = {
    "aten::_scaled_dot_product_flash_attention.default": reads_value_as_contiguous,
    "aten::_scaled_dot_product_efficient_attention.default": reads_value_as_contiguous,
}
