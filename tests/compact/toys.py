"""int8 .tflite files built operator by operator, without a converter."""

from __future__ import annotations

import math

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.types import Array
from shrink.tflite.model import packed, unpacked

_CODE, _KIND = schema.BuiltinOperator, schema.BuiltinOptions
_VERSIONS = {
    _CODE.CONV_2D: 3,
    _CODE.FULLY_CONNECTED: 4,
    _CODE.RESHAPE: 1,
    _CODE.SHAPE: 1,
    _CODE.TRANSPOSE_CONV: 3,
}
_SAME, _VALID = schema.Padding.SAME, schema.Padding.VALID
_SPREAD = 73.0
"""Standard deviation of int8 values drawn evenly."""


class Net:
    """A model of int8 operators with random weights; each method returns a tensor's index.

    Args:
        shape: of the input, (1, height, width, channels).
        seed: of the weights.
    """

    def __init__(self, shape: tuple[int, ...], seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.model, self.graph = schema.ModelT(), schema.SubGraphT()
        self.model.version, self.model.description = 3, "toy"
        self.model.buffers, self.model.operatorCodes = [schema.BufferT()], []
        self.graph.tensors, self.graph.operators = [], []
        self.codes: dict[tuple[int, int], int] = {}
        self.input = self.tensor(shape, scale=0.5)
        self.graph.inputs = [self.input]

    def shape(self, index: int) -> tuple[int, ...]:
        return tuple(int(size) for size in self.graph.tensors[index].shape)

    def scale(self, index: int) -> float:
        return float(self.graph.tensors[index].quantization.scale[0])

    def tensor(
        self,
        shape: tuple[int, ...],
        dtype: int = schema.TensorType.INT8,
        scale: float | list[float] | None = None,
        axis: int = 0,
        data: Array | None = None,
    ) -> int:
        stored = schema.TensorT()
        stored.shape, stored.type, stored.buffer = np.array(shape, np.int32), dtype, 0
        stored.name = f"t{len(self.graph.tensors)}".encode()
        if scale is not None:
            scales = scale if isinstance(scale, list) else [scale]
            stored.quantization = schema.QuantizationParametersT()
            stored.quantization.scale = np.array(scales, np.float32)
            stored.quantization.zeroPoint = np.zeros(len(scales), np.int64)
            stored.quantization.quantizedDimension = axis
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            stored.buffer = len(self.model.buffers)
            self.model.buffers.append(buffer)
        self.graph.tensors.append(stored)
        return len(self.graph.tensors) - 1

    def emit(
        self, code: int, inputs: list[int], output: int, options: object = None, kind: int = 0
    ) -> int:
        version = _VERSIONS.get(code, 2)
        if (code, version) not in self.codes:
            stored = schema.OperatorCodeT()
            stored.builtinCode, stored.version = code, version
            stored.deprecatedBuiltinCode = min(code, 127)
            self.codes[code, version] = len(self.model.operatorCodes)
            self.model.operatorCodes.append(stored)
        operator = schema.OperatorT()
        operator.opcodeIndex = self.codes[code, version]
        operator.inputs, operator.outputs = inputs, [output]
        operator.builtinOptions, operator.builtinOptionsType = options, kind
        self.graph.operators.append(operator)
        return output

    def conv(
        self,
        source: int,
        channels: int,
        kernel: tuple[int, int] = (3, 3),
        stride: int = 1,
        padding: int = _SAME,
        dilation: int = 1,
        depthwise: bool = False,
    ) -> int:
        _, height, width, depth = self.shape(source)
        reach = [(size - 1) * dilation + 1 for size in kernel]
        if padding == _SAME:
            sides = [-(-size // stride) for size in (height, width)]
        else:
            sides = [(s - k) // stride + 1 for s, k in zip((height, width), reach, strict=True)]
        if depthwise:
            channels, shape, axis = depth, (1, *kernel, depth), 3
        else:
            shape, axis = (channels, *kernel, depth), 0
        fan = math.prod(kernel) * (1 if depthwise else depth)
        scales = [float(v) for v in self.rng.uniform(0.005, 0.015, channels)]
        weights = self.rng.integers(-127, 128, shape).astype(np.int8)
        w = self.tensor(shape, scale=scales, axis=axis, data=weights)
        bias = self.rng.integers(-2000, 2000, channels).astype(np.int32)
        own = self.scale(source)
        biases = [own * scale for scale in scales]
        b = self.tensor((channels,), schema.TensorType.INT32, biases, data=bias)
        spread = own * 0.01 * _SPREAD * math.sqrt(fan)
        output = self.tensor((1, *sides, channels), scale=spread)
        options = schema.DepthwiseConv2DOptionsT() if depthwise else schema.Conv2DOptionsT()
        options.padding, options.strideH, options.strideW = padding, stride, stride
        options.dilationHFactor = options.dilationWFactor = dilation
        options.fusedActivationFunction = int(self.rng.integers(0, 2))  # NONE or RELU
        kind = _KIND.Conv2DOptions
        if depthwise:
            options.depthMultiplier, kind = 1, _KIND.DepthwiseConv2DOptions
        code = _CODE.DEPTHWISE_CONV_2D if depthwise else _CODE.CONV_2D
        return self.emit(code, [source, w, b], output, options, kind)

    def transposed(
        self,
        source: int,
        channels: int,
        kernel: int = 3,
        stride: int = 2,
        padding: int = _SAME,
        more: int = 0,
        bias: bool = True,
    ) -> int:
        """TRANSPOSE_CONV; `more` rows and columns, or fewer, than usual."""
        _, height, width, depth = self.shape(source)
        reach = 0 if padding == _SAME else kernel - stride
        sides = [size * stride + reach + more for size in (height, width)]
        scales = [float(v) for v in self.rng.uniform(0.005, 0.015, channels)]
        weights = self.rng.integers(-127, 128, (channels, kernel, kernel, depth)).astype(np.int8)
        w = self.tensor(weights.shape, scale=scales, data=weights)
        own = self.scale(source)
        shape = np.array([1, *sides, channels], np.int32)
        inputs = [self.tensor((4,), schema.TensorType.INT32, data=shape), w, source]
        if bias:
            values = self.rng.integers(-2000, 2000, channels).astype(np.int32)
            biases = [own * scale for scale in scales]
            inputs.append(self.tensor((channels,), schema.TensorType.INT32, biases, data=values))
        spread = own * 0.01 * _SPREAD * math.sqrt(max(1, kernel // stride) ** 2 * depth)
        output = self.tensor((1, *sides, channels), scale=spread)
        options = schema.TransposeConvOptionsT()
        options.padding, options.strideH, options.strideW = padding, stride, stride
        kind = _KIND.TransposeConvOptions
        return self.emit(_CODE.TRANSPOSE_CONV, inputs, output, options, kind)

    def dense(self, source: int, weights: Array, scales: int = 1) -> int:
        """A dense layer with these int8 weights (units, inputs), under one scale or one a unit."""
        units, inputs = weights.shape
        drawn = [float(v) for v in self.rng.uniform(0.005, 0.015, scales)]
        w = self.tensor((units, inputs), scale=drawn, data=weights)
        bias = self.rng.integers(-2000, 2000, units).astype(np.int32)
        own = self.scale(source)
        biases = [own * scale for scale in drawn]
        b = self.tensor((units,), schema.TensorType.INT32, biases, data=bias)
        spread = own * 0.01 * _SPREAD * math.sqrt(max(1, np.count_nonzero(weights) // units))
        output = self.tensor((1, units), scale=spread)
        options = schema.FullyConnectedOptionsT()
        options.fusedActivationFunction = int(self.rng.integers(0, 2))
        kind = _KIND.FullyConnectedOptions
        return self.emit(_CODE.FULLY_CONNECTED, [source, w, b], output, options, kind)

    def pool(self, source: int, size: int, stride: int, average: bool, padding: int) -> int:
        _, height, width, depth = self.shape(source)
        if padding == _SAME:
            sides = [-(-one // stride) for one in (height, width)]
        else:
            sides = [(one - size) // stride + 1 for one in (height, width)]
        options = schema.Pool2DOptionsT()
        options.padding, options.strideH, options.strideW = padding, stride, stride
        options.filterHeight = options.filterWidth = size
        output = self.tensor((1, *sides, depth), scale=self.scale(source))
        code = _CODE.AVERAGE_POOL_2D if average else _CODE.MAX_POOL_2D
        return self.emit(code, [source], output, options, _KIND.Pool2DOptions)

    def add(self, one: int, other: int) -> int:
        scale = math.hypot(self.scale(one), self.scale(other))
        output = self.tensor(self.shape(one), scale=scale)
        options = schema.AddOptionsT()
        options.potScaleInt16 = False
        return self.emit(_CODE.ADD, [one, other], output, options, _KIND.AddOptions)

    def same_scale(self, source: int, scale: float) -> int:
        output = self.tensor(self.shape(source), scale=scale)
        return self.emit(_CODE.QUANTIZE, [source], output)

    def make_uint8(self, index: int) -> None:
        stored = self.graph.tensors[index]
        stored.type, stored.quantization.zeroPoint = schema.TensorType.UINT8, np.array([128])

    def quantize(self, source: int, dtype: int, scale: float, zero_point: int) -> int:
        output = self.tensor(self.shape(source), dtype, scale)
        self.graph.tensors[output].quantization.zeroPoint[0] = zero_point
        return self.emit(_CODE.QUANTIZE, [source], output)

    def concat(self, sources: list[int], axis: int = 3) -> int:
        scale = self.scale(sources[0])
        given = [s if self.scale(s) == scale else self.same_scale(s, scale) for s in sources]
        shape = list(self.shape(sources[0]))
        shape[axis] = sum(self.shape(source)[axis] for source in sources)
        options = schema.ConcatenationOptionsT()
        options.axis = axis
        output = self.tensor(tuple(shape), scale=scale)
        return self.emit(_CODE.CONCATENATION, given, output, options, _KIND.ConcatenationOptions)

    def space_to_batch(self, source: int, batch: int, block: int = 2) -> int:
        """SPACE_TO_BATCH_ND of a height and width that the block divides, with a stored batch."""
        _, height, width, depth = self.shape(source)
        shape = (batch, height // block, width // block, depth)
        return self._with_blocks(_CODE.SPACE_TO_BATCH_ND, source, shape, block)

    def batch_to_space(self, source: int, block: int = 2) -> int:
        _, height, width, depth = self.shape(source)
        shape = (1, height * block, width * block, depth)
        return self._with_blocks(_CODE.BATCH_TO_SPACE_ND, source, shape, block)

    def _with_blocks(self, code: int, source: int, shape: tuple[int, ...], block: int) -> int:
        int32 = schema.TensorType.INT32
        blocks = self.tensor((2,), int32, data=np.array([block, block], np.int32))
        nothing = self.tensor((2, 2), int32, data=np.zeros((2, 2), np.int32))
        output = self.tensor(shape, scale=self.scale(source))
        return self.emit(code, [source, blocks, nothing], output)

    def pad(self, source: int, rows: tuple[int, int], columns: tuple[int, int]) -> int:
        _, height, width, depth = self.shape(source)
        values = np.array([[0, 0], rows, columns, [0, 0]], np.int32)
        paddings = self.tensor((4, 2), schema.TensorType.INT32, data=values)
        shape = (1, height + sum(rows), width + sum(columns), depth)
        output = self.tensor(shape, scale=self.scale(source))
        return self.emit(
            _CODE.PAD, [source, paddings], output, schema.PadOptionsT(), _KIND.PadOptions
        )

    def relu(self, source: int) -> int:
        output = self.tensor(self.shape(source), scale=self.scale(source))
        return self.emit(_CODE.RELU, [source], output)

    def enlarge(self, source: int, factor: int = 2, bilinear: bool = False) -> int:
        _, height, width, depth = self.shape(source)
        values = np.array([height * factor, width * factor], np.int32)
        size = self.tensor((2,), schema.TensorType.INT32, data=values)
        output = self.tensor((1, *map(int, values), depth), scale=self.scale(source))
        if not bilinear:
            options = schema.ResizeNearestNeighborOptionsT()
            kind, code = _KIND.ResizeNearestNeighborOptions, _CODE.RESIZE_NEAREST_NEIGHBOR
        else:
            options = schema.ResizeBilinearOptionsT()
            options.halfPixelCenters = bool(self.rng.integers(0, 2))
            kind, code = _KIND.ResizeBilinearOptions, _CODE.RESIZE_BILINEAR
        return self.emit(code, [source, size], output, options, kind)

    def file(self, *outputs: int) -> bytes:
        self.graph.outputs = list(outputs)
        self.model.subgraphs = [self.graph]
        return packed(self.model)


def chain(rows: int = 16) -> bytes:
    """A convolution that widens, a depthwise one and one that narrows again."""
    net = Net((1, rows, 8, 4))
    wide = net.conv(net.input, 24, (1, 1))
    return net.file(net.conv(net.conv(wide, 0, (3, 3), depthwise=True), 4, (1, 1)))


def with_uint8_borders(
    rows: int = 16, columns: int = 8, middle: int = 24, rescaled: float = 1.0
) -> bytes:
    """The same, of uint8 inputs and outputs, as quantized files of the years before int8 have."""
    net = Net((1, rows, columns, 4))
    net.make_uint8(net.input)
    given = net.quantize(net.input, schema.TensorType.INT8, rescaled * net.scale(net.input), 0)
    x = net.conv(net.conv(given, middle, (1, 1)), 0, (3, 3), depthwise=True)
    x = net.conv(x, 4, (1, 1))
    return net.file(net.quantize(x, schema.TensorType.UINT8, rescaled * net.scale(x), 128))


def with_float_borders(rows: int = 16, columns: int = 8, middle: int = 24) -> bytes:
    """The same, of float32 inputs and outputs."""
    net = Net((1, rows, columns, 4))
    stored = net.graph.tensors[net.input]
    stored.type, stored.quantization = schema.TensorType.FLOAT32, None
    given = net.quantize(net.input, schema.TensorType.INT8, 0.37, -5)
    x = net.conv(net.conv(given, middle, (1, 1)), 0, (3, 3), depthwise=True)
    x = net.conv(x, 4, (1, 1))
    output = net.tensor(net.shape(x), schema.TensorType.FLOAT32)
    return net.file(net.emit(_CODE.DEQUANTIZE, [x], output))


def as_of_2020(content: bytes) -> bytes:
    """Return convolutions with their kernels' dimension at the biases, as converters wrote it."""
    model = unpacked(content)
    tensors = model.subgraphs[0].tensors
    for operator in model.subgraphs[0].operators:
        tensors[operator.inputs[2]].quantization.quantizedDimension = 3
    return packed(model)


def with_old_codes(content: bytes) -> bytes:
    """Return the file as converters before 2020 named its operators: by the old field alone."""
    model = unpacked(content)
    for code in model.operatorCodes:
        code.deprecatedBuiltinCode, code.builtinCode = code.builtinCode, 0
    return packed(model)


def _as_int8(net: Net, uint8: bool) -> int:
    """Return the input, or an int8 one of the same values where it is to be uint8."""
    if not uint8:
        return net.input
    net.make_uint8(net.input)
    return net.quantize(net.input, schema.TensorType.INT8, net.scale(net.input), 0)


def random_net(seed: int) -> bytes:
    """Odd heights, strides, kernels and paddings; residuals, branches, pools, enlargements."""
    rng = np.random.default_rng(seed)
    pick = rng.integers
    net = Net((1, int(pick(17, 40)), int(pick(7, 20)), int(pick(1, 4))), seed)
    x = net.conv(_as_int8(net, uint8=pick(0, 4) == 0), 8)
    for _ in range(int(pick(5, 10))):
        _, height, width, _ = net.shape(x)
        kernel, stride = int(rng.choice([1, 2, 3, 5])), int(rng.choice([1, 1, 2]))
        small = min(height, width) < 9
        stride, kernel = (1, min(kernel, 3)) if small else (stride, kernel)
        padding = _VALID if not small and pick(0, 4) == 0 else _SAME
        kind = int(pick(0, 10))
        if kind <= 1:
            x = net.conv(x, int(rng.choice([4, 8, 12])), (kernel, 3), stride, padding)
        elif kind == 2:
            x = net.conv(x, 0, (kernel, kernel), stride, padding, depthwise=True)
        elif kind == 3:
            x = net.add(x, net.conv(x, net.shape(x)[3]))
        elif kind == 4:
            branches = [net.conv(x, 4), net.conv(x, 0, depthwise=True), net.conv(x, 3, (1, 1))]
            x = net.concat(branches)
        elif kind == 5:
            x = net.pool(x, 2 if stride == 2 else 3, stride, bool(pick(0, 2)), _SAME)
        elif kind == 6 and not small:
            x = net.conv(net.pad(x, (0, 1), (1, 1)), 8, (3, 3), 2, _VALID)
        elif kind == 7 and height < 24:
            x = net.enlarge(net.relu(x), bilinear=bool(pick(0, 2)))
        elif kind == 8 and height < 24:
            size, padding = int(rng.choice([1, 2, 3, 4, 5])), int(rng.choice([_SAME, _VALID]))
            x = net.transposed(x, 6, size, 2, padding, more=-int(pick(0, 2)) * (padding == _SAME))
        else:
            x = net.conv(x, 8, (3, 3), dilation=1 if small else 2)
    return net.file(net.conv(x, 6, (1, 1)))
