"""Layers, objects and functions that a Keras file may name; whatever is not here is refused.

Written from the public names of tf-keras 2.21, Keras 3.15 and TensorFlow 2.21, without those that
run code, read files or load other models (Lambda, TFSMLayer, TorchModuleWrapper, map_fn, ...).
"""

from __future__ import annotations

_LAYERS = """
    Activation ActivityRegularization AdaptiveAveragePooling1D AdaptiveAveragePooling2D
    AdaptiveAveragePooling3D AdaptiveMaxPooling1D AdaptiveMaxPooling2D AdaptiveMaxPooling3D Add
    AdditiveAttention AlphaDropout Attention AugMix AutoContrast Average AveragePooling1D
    AveragePooling2D AveragePooling3D AvgPool1D AvgPool2D AvgPool3D BatchNormalization
    Bidirectional CategoryEncoding CenterCrop Concatenate
    ContrastLimitedAdaptiveHistogramEqualization Conv1D Conv1DTranspose Conv2D Conv2DTranspose
    Conv3D Conv3DTranspose ConvLSTM1D ConvLSTM2D ConvLSTM3D Convolution1D Convolution1DTranspose
    Convolution2D Convolution2DTranspose Convolution3D Convolution3DTranspose Cropping1D
    Cropping2D Cropping3D CutMix Dense DepthwiseConv1D DepthwiseConv2D Discretization Dot
    Dropout ELU EinsumDense Embedding Equalization Flatten GRU GRUCell GaussianDropout
    GaussianNoise GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D
    GlobalAvgPool1D GlobalAvgPool2D GlobalAvgPool3D GlobalMaxPool1D GlobalMaxPool2D
    GlobalMaxPool3D GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D GroupNormalization
    GroupQueryAttention HashedCrossing Hashing Identity InputLayer IntegerLookup LSTM LSTMCell
    LayerNormalization LeakyReLU LocallyConnected1D LocallyConnected2D Masking
    MaxNumBoundingBoxes MaxPool1D MaxPool2D MaxPool3D MaxPooling1D MaxPooling2D MaxPooling3D
    Maximum MelSpectrogram Minimum MixUp MultiHeadAttention Multiply Normalization PReLU Permute
    RMSNormalization RNN RandAugment RandomBrightness RandomColorDegeneration RandomColorJitter
    RandomContrast RandomCrop RandomElasticTransform RandomErasing RandomFlip RandomGaussianBlur
    RandomGrayscale RandomHeight RandomHue RandomInvert RandomPerspective RandomPosterization
    RandomRotation RandomSaturation RandomSharpness RandomShear RandomTranslation RandomWidth
    RandomZoom ReLU RepeatVector Rescaling Reshape Resizing ReversibleEmbedding STFTSpectrogram
    SeparableConv1D SeparableConv2D SeparableConvolution1D SeparableConvolution2D SimpleRNN
    SimpleRNNCell Softmax Solarization SpatialDropout1D SpatialDropout2D SpatialDropout3D
    SpectralNormalization StackedRNNCells StringLookup Subtract TextVectorization
    ThresholdedReLU TimeDistributed UnitNormalization UpSampling1D UpSampling2D UpSampling3D
    ZeroPadding1D ZeroPadding2D ZeroPadding3D
"""

_OBJECTS = """
    Constant DTypePolicy DTypePolicyMap FloatDTypePolicy GlorotNormal GlorotUniform HeNormal
    HeUniform Identity IdentityInitializer L1 L1L2 L2 LecunNormal LecunUniform MaxNorm
    MinMaxNorm NonNeg Ones Orthogonal OrthogonalInitializer OrthogonalRegularizer Policy
    PolicyV1 RadialConstraint RandomNormal RandomUniform STFT STFTInitializer TruncatedNormal
    UnitNorm VarianceScaling Zeros constant glorot_normal glorot_uniform he_normal he_uniform
    identity l1 l1_l2 l2 lecun_normal lecun_uniform max_norm min_max_norm non_neg ones
    orthogonal orthogonal_regularizer radial_constraint random_normal random_uniform stft
    truncated_normal unit_norm variance_scaling zeros
"""

_ACTIVATIONS = """
    celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh
    leaky_relu linear log_sigmoid log_softmax mish relu relu6 selu sigmoid silu soft_shrink
    softmax softplus softsign sparse_plus sparse_sigmoid sparsemax squareplus swish tanh
    tanh_shrink threshold
"""

_METRICS = """
    AUC Accuracy BinaryAccuracy BinaryCrossentropy BinaryIoU CategoricalAccuracy
    CategoricalCrossentropy CategoricalHinge CosineSimilarity F1Score FBetaScore FalseNegatives
    FalsePositives Hinge IoU KLDivergence LogCoshError Mean MeanAbsoluteError
    MeanAbsolutePercentageError MeanIoU MeanMetricWrapper MeanRelativeError MeanSquaredError
    MeanSquaredLogarithmicError MeanTensor OneHotIoU OneHotMeanIoU Poisson Precision
    PrecisionAtRecall R2Score Recall RecallAtPrecision RootMeanSquaredError
    SensitivityAtSpecificity SparseCategoricalAccuracy SparseCategoricalCrossentropy
    SparseTopKCategoricalAccuracy SpecificityAtSensitivity SquaredHinge Sum
    TopKCategoricalAccuracy TrueNegatives TruePositives
"""

_METRIC_FUNCTIONS = """
    KLD MAE MAPE MSE MSLE binary_accuracy binary_crossentropy binary_focal_crossentropy
    categorical_accuracy categorical_crossentropy categorical_focal_crossentropy
    categorical_hinge cosine_similarity hinge huber kl_divergence kld
    kullback_leibler_divergence log_cosh logcosh mae mape mean_absolute_error
    mean_absolute_percentage_error mean_squared_error mean_squared_logarithmic_error mse msle
    poisson sparse_categorical_accuracy sparse_categorical_crossentropy
    sparse_top_k_categorical_accuracy squared_hinge top_k_categorical_accuracy
"""

LAYERS = frozenset(_LAYERS.split())
"""Layer classes of both Keras generations."""

OBJECTS = frozenset((_OBJECTS + _METRICS).split())
"""Initializers, regularizers, constraints, dtype policies and metrics."""

ACTIVATIONS = frozenset(_ACTIVATIONS.split())
"""Functions that `activation` and its like may name."""

FUNCTIONS = ACTIVATIONS | frozenset(_METRIC_FUNCTIONS.split())
"""Functions that may stand as objects."""

LOOKUPS = frozenset({"IntegerLookup", "StringLookup", "TextVectorization"})
"""Layers whose `vocabulary` may be the name of a file, which Keras would read."""

MODELS = frozenset({"Functional", "Sequential", "Model"})
LOSS_LAYERS = frozenset({"AddLoss", "AddMetric"})
"""What `model.add_loss(tensor)` and `model.add_metric` leave in a functional tf-keras model."""

TENSOR_FUNCTION_LAYERS = frozenset({"TFOpLambda", "SlicingOpLambda"})
"""Calls of a TensorFlow function by its name, as tf-keras writes them."""

VALUES = frozenset(
    {"__tuple__", "__slice__", "__ellipsis__", "__tensor__", "__numpy__", "__bytes__",
     "__complex__", "__keras_tensor__", "__shape__", "TensorShape", "TypeSpec",
     "InputSpec"}
)  # fmt: skip
"""Plain values that the formats wrap as objects."""

PUBLIC_MODULES = frozenset(
    {"keras", "keras.activations", "keras.constraints", "keras.dtype_policies",
     "keras.initializers", "keras.layers", "keras.losses", "keras.metrics",
     "keras.mixed_precision", "keras.models",
     "keras.regularizers", "keras.src.activations.activations", "builtins"}
)  # fmt: skip
MODEL_MODULES = frozenset(
    {"keras", "keras.models", "keras.src.models.functional", "keras.src.models.sequential",
     "keras.src.models.model", "keras.src.engine.functional", "keras.src.engine.sequential",
     "keras.engine.functional", "keras.engine.sequential", "tf_keras",
     "tf_keras.src.engine.functional", "tf_keras.src.engine.sequential"}
)  # fmt: skip
LOSS_MODULES = frozenset(
    {"keras.src.engine.base_layer", "keras.engine.base_layer", "tf_keras.src.engine.base_layer"}
)
TENSOR_FUNCTION_MODULES = frozenset(
    {"keras.src.layers.core.tf_op_layer", "keras.layers.core.tf_op_layer",
     "tf_keras.src.layers.core.tf_op_layer"}
)  # fmt: skip
