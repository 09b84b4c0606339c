"""Operators that the graph of a SavedModel may hold; whatever is not here is refused.

Written from TensorFlow 2.21's registered operators: those without side effects outside the graph.
Nothing that opens files or sockets, runs Python, prints, or reads a data set.
"""

from __future__ import annotations

_OPERATORS = """
    Abs AccumulateNV2 Acos Acosh Add AddN AddV2 AdjustContrast AdjustContrastv2 AdjustHue
    AdjustSaturation All Angle Any ApproxTopK ApproximateEqual ArgMax ArgMin Asin Asinh
    AssignAddVariableOp AssignSubVariableOp AssignVariableOp Atan Atan2 Atanh AvgPool AvgPool3D
    AvgPool3DGrad AvgPoolGrad BandedTriangularSolve BatchMatMul BatchMatMulV2 BatchMatMulV3
    BatchNormWithGlobalNormalization BatchNormWithGlobalNormalizationGrad BatchToSpace
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
