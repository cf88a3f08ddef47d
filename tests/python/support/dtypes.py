"""Names of data types."""

NUMPY_DTYPES = "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128".split()
