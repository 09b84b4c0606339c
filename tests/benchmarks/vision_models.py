"""A detector and a U-Net that others designed, built from their descriptions, for small images."""

from __future__ import annotations

import tf_keras as keras

layers = keras.layers

ANCHORS = (((12, 16), (17, 24)), ((22, 32), (28, 40)))
"""Width and height in pixels, of the strides 16 and 32: the sizes at which digits are drawn."""
STRIDES = (16, 32)


def yolov3_tiny(
    width: float = 0.25, size: int = 96, classes: int = 10, anchors: int = 2
) -> keras.Model:
    """Build YOLOv3-tiny: two levels, the finer one through an upsampling and a concatenation.

    Redmon and Farhadi, "YOLOv3: An Incremental Improvement", 2018, and the layers of the file
    yolov3-tiny.cfg of darknet: batch norm and leaky ReLU of 0.1 throughout. Input (batch, size,
    size, 1), values 0..255; outputs (batch, size / 16, size / 16, anchors * (5 + classes)), and the
    same at a stride of 32.

    Args:
        width: multiplies the channels, at least 8 are left.
        size: of the image, a multiple of 32.
        classes: of objects.
        anchors: of each level; the file has 3.
    """

    def conv(x: keras.KerasTensor, channels: int, kernel: int, name: str) -> keras.KerasTensor:
        count = max(8, round(channels * width))
        x = layers.Conv2D(count, kernel, padding="same", use_bias=False, name=f"{name}_conv")(x)
        x = layers.BatchNormalization(momentum=0.9, name=f"{name}_bn")(x)
        return layers.LeakyReLU(0.1, name=f"{name}_leaky")(x)

    inputs = layers.Input((size, size, 1), name="image")
    x = layers.Rescaling(1 / 255, name="rescale")(inputs)
    for index, channels in enumerate((16, 32, 64, 128)):
        x = conv(x, channels, 3, f"down{index}")
        x = layers.MaxPooling2D(2, name=f"pool{index}")(x)
    fine = conv(x, 256, 3, "down4")
    x = conv(layers.MaxPooling2D(2, name="pool4")(fine), 512, 3, "down5")
    x = layers.MaxPooling2D(2, strides=1, padding="same", name="pool5")(x)
    x = conv(conv(x, 1024, 3, "down6"), 256, 1, "neck")
    columns = anchors * (5 + classes)
    coarse = layers.Conv2D(columns, 1, name="coarse")(conv(x, 512, 3, "coarse_head"))
    x = layers.UpSampling2D(2, name="grow")(conv(x, 128, 1, "route"))
    x = conv(layers.Concatenate(name="join")([x, fine]), 256, 3, "fine_head")
    outputs = [layers.Conv2D(columns, 1, name="fine")(x), coarse]
    return keras.Model(inputs, outputs, name="yolov3_tiny")


def unet(width: float = 3 / 32, size: int = 96, classes: int = 11) -> keras.Model:
    """Build the U-Net: two convolutions a level, transposed convolutions up, concatenations.

    Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015,
    figure 1: five levels of 64 to 1,024 channels, with padding and batch norm, as implementations
    since have it. Input (batch, size, size, 1), values 0..255; output logits (batch, size, size,
    classes).

    Args:
        width: multiplies the channels.
        size: of the image, a multiple of 16.
        classes: of a pixel.
    """

    def twice(x: keras.KerasTensor, count: int, name: str) -> keras.KerasTensor:
        for part in "ab":
            x = layers.Conv2D(count, 3, padding="same", use_bias=False, name=f"{name}{part}")(x)
            x = layers.BatchNormalization(momentum=0.9, name=f"{name}{part}_bn")(x)
            x = layers.ReLU(name=f"{name}{part}_relu")(x)
        return x

    counts = [round(64 * 2**level * width) for level in range(5)]
    inputs = layers.Input((size, size, 1), name="image")
    x = layers.Rescaling(1 / 255, name="rescale")(inputs)
    skips = []
    for level, count in enumerate(counts[:-1]):
        x = twice(x, count, f"down{level}")
        skips.append(x)
        x = layers.MaxPooling2D(2, name=f"pool{level}")(x)
    x = twice(x, counts[-1], "bottom")
    for level in reversed(range(4)):
        x = layers.Conv2DTranspose(counts[level], 2, strides=2, name=f"grow{level}")(x)
        x = layers.Concatenate(name=f"join{level}")([skips[level], x])
        x = twice(x, counts[level], f"up{level}")
    return keras.Model(inputs, layers.Conv2D(classes, 1, name="logits")(x), name="unet")
