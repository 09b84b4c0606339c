"""Layers, functions and operators that a model file may name; whatever is not here is refused.

Layers and functions are written from the public names of tf-keras 2.21, Keras 3.15 and TensorFlow
2.21, without those that run code, take a function to call, read files, decode images or load
other models (Lambda, TFSMLayer, TorchModuleWrapper, map_fn, ...).

Operators, which the graph of a SavedModel may hold, are TensorFlow 2.21's registered ones without
side effects outside the graph: nothing that opens files or sockets, runs Python, prints, or reads a
data set.
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
    QuantizedDTypePolicy QuantizedFloat8DTypePolicy Int4DTypePolicy GPTQDTypePolicy AWQDTypePolicy
    AbsMaxQuantizer Int8QuantizationConfig Int4QuantizationConfig Float8QuantizationConfig
    GPTQConfig AWQConfig QuantizationConfig
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
     "keras.mixed_precision", "keras.models", "keras.quantizers",
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


_TF_TOP = """
    abs acos acosh add add_n argmax argmin argsort asin asinh atan atan2 atanh batch_to_space
    bitcast boolean_mask broadcast_to cast clip_by_norm clip_by_value complex concat constant
    convert_to_tensor cos cosh cumsum divide dynamic_partition dynamic_stitch einsum
    ensure_shape equal exp expand_dims eye fill floor gather gather_nd greater greater_equal
    identity identity_n less less_equal linspace logical_and logical_not logical_or matmul
    maximum meshgrid minimum multiply negative norm not_equal one_hot ones ones_like pad pow
    range rank realdiv reduce_all reduce_any reduce_logsumexp reduce_max reduce_mean reduce_min
    reduce_prod reduce_sum repeat reshape reverse reverse_sequence roll round saturate_cast
    scalar_mul scatter_nd searchsorted sequence_mask shape sigmoid sign sin sinh size slice sort
    space_to_batch space_to_batch_nd split sqrt square squeeze stack stop_gradient strided_slice
    subtract tan tanh tensor_scatter_nd_add tensor_scatter_nd_max tensor_scatter_nd_min
    tensor_scatter_nd_sub tensor_scatter_nd_update tensordot tile transpose truediv truncatediv
    truncatemod unique unique_with_counts unravel_index unstack where zeros zeros_like
"""

_TF_OPERATORS = """
    add eq getitem ne
"""

_TF_MATH = """
    abs accumulate_n acos acosh add add_n angle approx_max_k approx_min_k argmax argmin asin
    asinh atan atan2 atanh bessel_i0 bessel_i0e bessel_i1 bessel_i1e betainc bincount ceil
    confusion_matrix conj cos cosh count_nonzero cumprod cumsum cumulative_logsumexp digamma
    divide divide_no_nan equal erf erfc erfcinv erfinv exp expm1 floor floordiv floormod greater
    greater_equal igamma igammac imag in_top_k invert_permutation is_finite is_inf is_nan
    is_non_decreasing is_strictly_increasing l2_normalize lbeta less less_equal lgamma log log1p
    log_sigmoid log_softmax logical_and logical_not logical_or logical_xor maximum minimum mod
    multiply multiply_no_nan ndtri negative nextafter not_equal polygamma polyval pow real
    reciprocal reciprocal_no_nan reduce_all reduce_any reduce_euclidean_norm reduce_logsumexp
    reduce_max reduce_mean reduce_min reduce_prod reduce_std reduce_sum reduce_variance rint
    round rsqrt scalar_mul segment_max segment_mean segment_min segment_prod segment_sum sigmoid
    sign sin sinh sobol_sample softmax softplus softsign sqrt square squared_difference subtract
    tan tanh top_k truediv unsorted_segment_max unsorted_segment_mean unsorted_segment_min
    unsorted_segment_prod unsorted_segment_sqrt_n unsorted_segment_sum xdivy xlog1py xlogy
    zero_fraction zeta
"""

_TF_NN = """
    all_candidate_sampler approx_max_k approx_min_k atrous_conv2d atrous_conv2d_transpose
    avg_pool avg_pool1d avg_pool2d avg_pool3d batch_norm_with_global_normalization
    batch_normalization bias_add collapse_repeated compute_accidental_hits conv1d
    conv1d_transpose conv2d conv2d_transpose conv3d conv3d_transpose conv_transpose convolution
    crelu ctc_beam_search_decoder ctc_greedy_decoder ctc_loss ctc_unique_labels depth_to_space
    depthwise_conv2d depthwise_conv2d_backprop_filter depthwise_conv2d_backprop_input dilation2d
    dropout elu embedding_lookup embedding_lookup_sparse erosion2d
    fixed_unigram_candidate_sampler fractional_avg_pool fractional_max_pool gelu in_top_k
    isotonic_regression l2_loss l2_normalize leaky_relu learned_unigram_candidate_sampler
    local_response_normalization log_poisson_loss log_softmax lrn max_pool max_pool1d max_pool2d
    max_pool3d max_pool_with_argmax moments nce_loss normalize_moments pool relu relu6
    safe_embedding_lookup_sparse sampled_softmax_loss selu separable_conv2d sigmoid
    sigmoid_cross_entropy_with_logits silu softmax softmax_cross_entropy_with_logits softplus
    softsign space_to_batch space_to_depth sparse_softmax_cross_entropy_with_logits
    sufficient_statistics swish tanh top_k weighted_cross_entropy_with_logits weighted_moments
    with_space_to_batch zero_fraction
"""

_TF_LINALG = """
    adjoint band_part banded_triangular_solve cholesky cholesky_solve cross det diag diag_part
    eig eigh eigh_tridiagonal eigvals eigvalsh einsum expm eye global_norm inv l2_normalize
    logdet logm lstsq lu lu_matrix_inverse lu_reconstruct lu_solve matmul matrix_rank
    matrix_transpose matvec norm normalize pinv qr set_diag slogdet solve sqrtm svd tensor_diag
    tensor_diag_part tensordot trace triangular_solve tridiagonal_matmul tridiagonal_solve
"""

_TF_SIGNAL = """
    dct fft fft2d fft3d fftnd fftshift frame hamming_window hann_window idct ifft ifft2d ifft3d
    ifftnd ifftshift inverse_mdct inverse_stft inverse_stft_window_fn irfft irfft2d irfft3d
    irfftnd kaiser_bessel_derived_window kaiser_window linear_to_mel_weight_matrix mdct
    mfccs_from_log_mel_spectrograms overlap_and_add rfft rfft2d rfft3d rfftnd stft vorbis_window
"""

_TF_IMAGE = """
    adjust_brightness adjust_contrast adjust_gamma adjust_hue adjust_jpeg_quality
    adjust_saturation central_crop combined_non_max_suppression convert_image_dtype
    crop_and_resize crop_to_bounding_box extract_glimpse extract_patches flip_left_right
    flip_up_down generate_bounding_box_proposals grayscale_to_rgb hsv_to_rgb image_gradients
    non_max_suppression non_max_suppression_overlaps non_max_suppression_padded
    non_max_suppression_with_scores pad_to_bounding_box per_image_standardization psnr resize
    resize_with_crop_or_pad resize_with_pad rgb_to_grayscale rgb_to_hsv rgb_to_yiq rgb_to_yuv
    rot90 sample_distorted_bounding_box sobel_edges ssim ssim_multiscale total_variation
    transpose yiq_to_rgb yuv_to_rgb
"""

_TF_COMPAT_V1_NN = """
    all_candidate_sampler approx_max_k approx_min_k atrous_conv2d atrous_conv2d_transpose
    avg_pool avg_pool1d avg_pool2d avg_pool3d batch_norm_with_global_normalization
    batch_normalization bias_add collapse_repeated compute_accidental_hits conv1d
    conv1d_transpose conv2d conv2d_transpose conv3d conv3d_transpose conv_transpose convolution
    crelu ctc_beam_search_decoder ctc_greedy_decoder ctc_loss ctc_unique_labels depth_to_space
    depthwise_conv2d depthwise_conv2d_backprop_filter depthwise_conv2d_backprop_input
    depthwise_conv2d_native dilation2d dropout elu embedding_lookup embedding_lookup_sparse
    erosion2d fixed_unigram_candidate_sampler fractional_avg_pool fractional_max_pool gelu
    in_top_k isotonic_regression l2_loss l2_normalize leaky_relu
    learned_unigram_candidate_sampler local_response_normalization log_poisson_loss log_softmax
    lrn max_pool max_pool1d max_pool2d max_pool3d max_pool_with_argmax moments nce_loss
    normalize_moments pool relu relu6 safe_embedding_lookup_sparse sampled_softmax_loss selu
    separable_conv2d sigmoid sigmoid_cross_entropy_with_logits silu softmax
    softmax_cross_entropy_with_logits softplus softsign space_to_batch space_to_depth
    sparse_softmax_cross_entropy_with_logits sufficient_statistics swish tanh top_k
    weighted_cross_entropy_with_logits weighted_moments with_space_to_batch zero_fraction
"""

_TF_COMPAT_V1 = """
    concat expand_dims reduce_max reduce_mean reduce_min reduce_sum reshape squeeze transpose
"""

_TF_COMPAT_V1_IMAGE = """
    resize resize_bilinear resize_nearest_neighbor
"""

_KERAS_NUMPY = """
    Abs Absolute Add All AllClose Amax Amin Angle Any Append Arange Arccos Arccosh Arcsin
    Arcsinh Arctan Arctan2 Arctanh Argmax Argmin Argpartition Argsort Array ArraySplit Average
    Bincount BitwiseAnd BitwiseInvert BitwiseLeftShift BitwiseNot BitwiseOr BitwiseRightShift
    BitwiseXor BroadcastTo Cbrt Ceil Clip Concatenate Conj Conjugate Copy Corrcoef Correlate Cos
    Cosh CountNonzero Cross Cumprod Cumsum Deg2rad Diag Diagflat Diagonal Diff Digitize Divide
    DivideNoNan Dot Dsplit Dstack Einsum EmptyLike Equal Exp Exp2 ExpandDims Expm1 Fabs Flip
    Fliplr Flipud Floor FloorDivide Fmax Fmin Fmod Full FullLike Gcd Geomspace GetItem Greater
    GreaterEqual Heaviside Histogram Hsplit Hstack Hypot I0 Imag Inner IsIn Isclose Isfinite
    Isinf Isnan Isneginf Isposinf Isreal Kron Lcm Ldexp LeftShift Less LessEqual Linspace Log
    Log10 Log1p Log2 Logaddexp Logaddexp2 LogicalAnd LogicalNot LogicalOr LogicalXor Logspace
    Matmul Max Maximum Mean Median Meshgrid Min Minimum Mod Moveaxis Multiply NanToNum Nanargmax
    Nanargmin Nancumprod Nancumsum Nanmax Nanmean Nanmedian Nanmin Nanpercentile Nanprod
    Nanquantile Nanstd Nansum Nanvar Ndim Negative Nextafter Nonzero NotEqual OnesLike Outer Pad
    Percentile Power Prod Ptp Quantile Rad2deg Ravel Real Reciprocal Repeat Reshape RightShift
    Roll Rot90 Round SearchSorted Select Sign Signbit Sin Sinc Sinh Size Slogdet Sort Split Sqrt
    Square Squeeze Stack Std Subtract Sum Swapaxes Take TakeAlongAxis Tan Tanh Tensordot Tile
    Trace Transpose Trapezoid Tril Triu TrueDivide Trunc Unique UnravelIndex Vander Var Vdot
    View Vsplit Vstack Where ZerosLike
"""

_KERAS_NN = """
    AdaptiveAveragePool AdaptiveMaxPool AveragePool BatchNorm BinaryCrossentropy CTCDecode
    CTCLoss CategoricalCrossentropy Celu Conv ConvTranspose DepthToSpace DepthwiseConv
    DotProductAttention Elu Fold Gelu Glu HardShrink HardSigmoid HardSilu HardTanh LayerNorm
    LeakyRelu LogSigmoid LogSoftmax MaxPool Moments MultiHot Normalize OneHot PSNR Polar RMSNorm
    Relu Relu6 Selu SeparableConv Sigmoid Silu SoftShrink Softmax Softplus Softsign SpaceToDepth
    SparseCategoricalCrossentropy SparsePlus SparseSigmoid Sparsemax Squareplus TanhShrink
    Threshold Unfold
"""

_KERAS_CORE = """
    Cast ConvertToTensor SaturateCast Scatter ScatterUpdate Slice SliceUpdate StopGradient
    Unstack
"""

_KERAS_IMAGE = """
    AffineTransform CropImages ElasticTransform ExtractPatches GaussianBlur HSVToRGB
    MapCoordinates PadImages PerspectiveTransform RGBToGrayscale RGBToHSV Resize SSIM
    ScaleAndTranslate SobelEdges
"""

_KERAS_LINALG = """
    Cholesky CholeskyInverse Det Eig Eigh Inv Lstsq LuFactor MatrixRank Norm Pinv Qr SVD Solve
    SolveTriangular
"""

_KERAS_MATH = """
    CDist Erf Erfc Erfinv ExtractSequences FFT FFT2 IFFT2 IRFFT ISTFT InTopK Logdet Logsumexp
    RFFT Rsqrt STFT SegmentMax SegmentMin SegmentProd SegmentReduction SegmentSum TopK
    ViewAsComplex ViewAsReal
"""

_TENSORFLOW = {
    "": _TF_TOP,
    "__operators__.": _TF_OPERATORS,
    "math.": _TF_MATH,
    "nn.": _TF_NN,
    "linalg.": _TF_LINALG,
    "signal.": _TF_SIGNAL,
    "image.": _TF_IMAGE,
    "compat.v1.nn.": _TF_COMPAT_V1_NN,
    "compat.v1.": _TF_COMPAT_V1,
    "compat.v1.image.": _TF_COMPAT_V1_IMAGE,
}

TENSOR_FUNCTIONS = frozenset(
    prefix + name for prefix, names in _TENSORFLOW.items() for name in names.split()
)
"""What a TFOpLambda layer may call: names under `tf.`"""

KERAS_OPS: dict[str, frozenset[str]] = {
    "keras.src.ops.numpy": frozenset(_KERAS_NUMPY.split()),
    "keras.src.ops.nn": frozenset(_KERAS_NN.split()),
    "keras.src.ops.core": frozenset(_KERAS_CORE.split()),
    "keras.src.ops.image": frozenset(_KERAS_IMAGE.split()),
    "keras.src.ops.linalg": frozenset(_KERAS_LINALG.split()),
    "keras.src.ops.math": frozenset(_KERAS_MATH.split()),
    "keras.src.applications.convnext": frozenset({"LayerScale", "StochasticDepth"}),
    "keras.src.applications.inception_resnet_v2": frozenset({"CustomScaleLayer"}),
}
"""Operation classes of Keras 3 by module, as they stand among the layers of a functional model."""


_OPERATORS = """
    Abs AccumulateNV2 Acos Acosh Add AddN AddV2 AdjustContrast AdjustContrastv2 AdjustHue
    AdjustSaturation All Angle Any ApproxTopK ApproximateEqual ArgMax ArgMin Asin Asinh
    Assert AssignAddVariableOp AssignSubVariableOp AssignVariableOp Atan Atan2 Atanh AvgPool
    AvgPool3D AvgPool3DGrad AvgPoolGrad BandedTriangularSolve BatchMatMul BatchMatMulV2
    BatchMatMulV3 BatchNormWithGlobalNormalization BatchNormWithGlobalNormalizationGrad BatchToSpace
    BatchToSpaceND BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK0e
    BesselK1 BesselK1e BesselY0 BesselY1 Betainc BiasAdd BiasAddGrad Bincount Bitcast BitwiseAnd
    BitwiseOr BitwiseXor BlockLSTM BlockLSTMGrad BlockLSTMGradV2 BlockLSTMV2 BroadcastArgs
    BroadcastGradientArgs BroadcastTo Bucketize Case Cast Ceil CheckNumerics CheckNumericsV2
    Cholesky CholeskyGrad ClipByValue CombinedNonMaxSuppression Complex ComplexAbs Concat
    ConcatOffset ConcatV2 Conj ConjugateTranspose Const Conv Conv2D Conv2DBackpropFilter
    Conv2DBackpropFilterV2 Conv2DBackpropInput Conv2DBackpropInputV2 Conv3D Conv3DBackpropFilter
    Conv3DBackpropFilterV2 Conv3DBackpropInput Conv3DBackpropInputV2 Cos Cosh CropAndResize
    CropAndResizeGradBoxes CropAndResizeGradImage Cross CudnnRNN CudnnRNNBackprop
    CudnnRNNBackpropV2 CudnnRNNBackpropV3 CudnnRNNCanonicalToParams CudnnRNNCanonicalToParamsV2
    CudnnRNNParamsSize CudnnRNNParamsToCanonical CudnnRNNParamsToCanonicalV2 CudnnRNNV2
    CudnnRNNV3 Cumprod Cumsum CumulativeLogsumexp DataFormatDimMap DataFormatVecPermute Dawsn
    DenseBincount DenseCountSparseOutput DenseToDenseSetOperation DenseToSparseSetOperation
    DepthToSpace DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter
    DepthwiseConv2dNativeBackpropInput Dequantize DestroyResourceOp Diag DiagPart Digamma
    Dilation2D Dilation2DBackpropFilter Dilation2DBackpropInput DisableCopyOnRead Div DivNoNan
    DynamicPartition DynamicStitch Eig Einsum Elu EluGrad Empty EmptyTensorList EnsureShape
    Enter Equal Erf Erfc Erfinv EuclideanNorm Exit Exp ExpandDims Expint Expm1 ExtractGlimpse
    ExtractGlimpseV2 ExtractImagePatches ExtractVolumePatches FFT FFT2D FFT3D FFTND FakeParam
    FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient FakeQuantWithMinMaxVars
    FakeQuantWithMinMaxVarsGradient FakeQuantWithMinMaxVarsPerChannel
    FakeQuantWithMinMaxVarsPerChannelGradient Fill Fingerprint Floor FloorDiv FloorMod
    FractionalAvgPool FractionalAvgPoolGrad FractionalMaxPool FractionalMaxPoolGrad FresnelCos
    FresnelSin FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3
    FusedBatchNormV2 FusedBatchNormV3 FusedPadConv2D FusedResizeAndPadConv2D GRUBlockCell
    GRUBlockCellGrad Gather GatherNd GatherV2 Greater GreaterEqual GuaranteeConst HSVToRGB
    HistogramFixedWidth IFFT IFFT2D IFFT3D IFFTND IRFFT IRFFT2D IRFFT3D IRFFTND Identity
    IdentityN If Igamma IgammaGradA Igammac Imag ImageProjectiveTransformV2
    ImageProjectiveTransformV3 InTopK InTopKV2 InplaceAdd InplaceSub InplaceUpdate Inv InvGrad
    Invert InvertPermutation IsFinite IsInf IsNan IsotonicRegression L2Loss LRN LRNGrad
    LSTMBlockCell LSTMBlockCellGrad LeakyRelu LeakyReluGrad LeftShift Less LessEqual Lgamma
    LinSpace ListDiff Log Log1p LogMatrixDeterminant LogSoftmax LogicalAnd LogicalNot LogicalOr
    LoopCond LowerBound Lu MatMul MatrixBandPart MatrixDeterminant MatrixDiag MatrixDiagPart
    MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2 MatrixDiagV3 MatrixExponential MatrixInverse
    MatrixLogarithm MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MatrixSolve MatrixSolveLs
    MatrixSquareRoot MatrixTriangularSolve Max MaxPool MaxPool3D MaxPool3DGrad MaxPool3DGradGrad
    MaxPoolGrad MaxPoolGradGrad MaxPoolGradGradV2 MaxPoolGradGradWithArgmax MaxPoolGradV2
    MaxPoolGradWithArgmax MaxPoolV2 MaxPoolWithArgmax Maximum Mean Merge Min Minimum MirrorPad
    MirrorPadGrad Mod Mul MulNoNan Multinomial Ndtri Neg NextAfter NextIteration NoOp
    NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4
    NonMaxSuppressionV5 NonMaxSuppressionWithOverlaps NotEqual NthElement OneHot OnesLike Pack
    Pad PadV2 ParallelDynamicStitch PartitionedCall Placeholder PlaceholderWithDefault Polygamma
    PopulationCount Pow PreventGradient Prod Qr QuantizeAndDequantize QuantizeAndDequantizeV2
    QuantizeAndDequantizeV3 QuantizeAndDequantizeV4 QuantizeAndDequantizeV4Grad
    QuantizeDownAndShrinkRange QuantizeV2 QuantizedAdd QuantizedAvgPool
    QuantizedBatchNormWithGlobalNormalization QuantizedBiasAdd QuantizedConcat QuantizedConv2D
    QuantizedConv2DAndRelu QuantizedConv2DAndReluAndRequantize QuantizedConv2DAndRequantize
    QuantizedConv2DPerChannel QuantizedConv2DWithBias QuantizedConv2DWithBiasAndRelu
    QuantizedConv2DWithBiasAndReluAndRequantize QuantizedConv2DWithBiasAndRequantize
    QuantizedConv2DWithBiasSignedSumAndReluAndRequantize QuantizedConv2DWithBiasSumAndRelu
    QuantizedConv2DWithBiasSumAndReluAndRequantize QuantizedDepthwiseConv2D
    QuantizedDepthwiseConv2DWithBias QuantizedDepthwiseConv2DWithBiasAndRelu
    QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize QuantizedInstanceNorm QuantizedMatMul
    QuantizedMatMulWithBias QuantizedMatMulWithBiasAndDequantize QuantizedMatMulWithBiasAndRelu
    QuantizedMatMulWithBiasAndReluAndRequantize QuantizedMatMulWithBiasAndRequantize
    QuantizedMaxPool QuantizedMul QuantizedRelu QuantizedRelu6 QuantizedReluX QuantizedReshape
    QuantizedResizeBilinear RFFT RFFT2D RFFT3D RFFTND RGBToHSV RandomGammaGrad
    RandomIndexShuffle RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt Range
    Rank ReadVariableOp Real RealDiv Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad
    RequantizationRange RequantizationRangePerChannel Requantize RequantizePerChannel Reshape
    ResizeArea ResizeBicubic ResizeBicubicGrad ResizeBilinear ResizeBilinearGrad
    ResizeNearestNeighbor ResizeNearestNeighborGrad ResourceGather ResourceGatherNd
    ResourceScatterAdd ResourceScatterUpdate ResourceStridedSliceAssign Reverse ReverseSequence
    ReverseV2 RightShift Rint RngReadAndSkip RngSkip Roll Round Rsqrt RsqrtGrad
    ScaleAndTranslate ScaleAndTranslateGrad ScatterNd SegmentMax SegmentMaxV2 SegmentMean
    SegmentMin SegmentMinV2 SegmentProd SegmentProdV2 SegmentSum SegmentSumV2 Select SelectV2
    SelfAdjointEig SelfAdjointEigV2 Selu SeluGrad SetSize Shape ShapeN Sigmoid SigmoidGrad Sign
    Sin Sinh Size Slice Softmax SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad Softsign
    SoftsignGrad SpaceToBatch SpaceToBatchND SpaceToDepth SparseAdd SparseAddGrad SparseBincount
    SparseConcat SparseCountSparseOutput SparseCross SparseCrossHashed SparseCrossV2
    SparseDenseCwiseAdd SparseDenseCwiseDiv SparseDenseCwiseMul SparseFillEmptyRows
    SparseFillEmptyRowsGrad SparseMatMul SparseReduceMax SparseReduceMaxSparse SparseReduceSum
    SparseReduceSumSparse SparseReorder SparseReshape SparseSegmentMean SparseSegmentMeanGrad
    SparseSegmentMeanGradV2 SparseSegmentMeanWithNumSegments SparseSegmentSqrtN
    SparseSegmentSqrtNGrad SparseSegmentSqrtNGradV2 SparseSegmentSqrtNWithNumSegments
    SparseSegmentSum SparseSegmentSumGrad SparseSegmentSumGradV2 SparseSegmentSumWithNumSegments
    SparseSlice SparseSliceGrad SparseSoftmax SparseSoftmaxCrossEntropyWithLogits
    SparseSparseMaximum SparseSparseMinimum SparseSplit SparseTensorDenseAdd
    SparseTensorDenseMatMul SparseToDense SparseToSparseSetOperation Spence Split SplitV Sqrt
    SqrtGrad Square SquaredDifference Squeeze StatefulPartitionedCall StatefulStandardNormalV2
    StatefulTruncatedNormal StatefulUniform StatefulUniformInt StatelessCase StatelessIf
    StatelessMultinomial StatelessParameterizedTruncatedNormal StatelessRandomBinomial
    StatelessRandomGammaV2 StatelessRandomGammaV3 StatelessRandomGetAlg
    StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg StatelessRandomNormal
    StatelessRandomNormalV2 StatelessRandomPoisson StatelessRandomUniform
    StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomUniformInt
    StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessSampleDistortedBoundingBox
    StatelessShuffle StatelessTruncatedNormal StatelessTruncatedNormalV2 StatelessWhile
    StaticRegexFullMatch StopGradient StridedSlice StridedSliceAssign StridedSliceGrad
    StringJoin Sub Sum Svd Switch SyncDevice Tan Tanh TanhGrad TensorArrayCloseV3
    TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayReadV3 TensorArrayScatterV3
    TensorArraySizeV3 TensorArraySplitV3 TensorArrayV3 TensorArrayWriteV3 TensorListConcat
    TensorListConcatLists TensorListConcatV2 TensorListElementShape TensorListFromTensor
    TensorListGather TensorListGetItem TensorListLength TensorListPopBack TensorListPushBack
    TensorListPushBackBatch TensorListReserve TensorListResize TensorListScatter
    TensorListScatterIntoExistingList TensorListScatterV2 TensorListSetItem TensorListSplit
    TensorListStack TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub
    TensorScatterUpdate TensorStridedSliceUpdate Tile TileGrad ToBool TopK TopKV2 Transpose
    TridiagonalMatMul TridiagonalSolve TruncateDiv TruncateMod TruncatedNormal Unique UniqueV2
    UniqueWithCounts UniqueWithCountsV2 Unpack UnravelIndex UnsortedSegmentMax
    UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum UpperBound VarHandleOp
    VarIsInitializedOp VariableShape Where While Xdivy Xlog1py Xlogy ZerosLike Zeta
"""

OPERATORS = frozenset(_OPERATORS.split())

SAVER_OPERATORS = frozenset(
    {"SaveV2", "RestoreV2", "MergeV2Checkpoints", "ShardedFilename"}
)  # fmt: skip
"""File operators of the functions with which every SavedModel saves and restores its variables."""
