//! Data of Python as inputs of ingest: NumPy arrays, sparse matrices, and tables of Arrow. Nothing is copied.

#![expect(unsafe_code, reason = "the buffer protocol and the Arrow C interface pass addresses")]

use std::{fmt, io, slice, sync::Arc};

use arrow_array::{
    ArrayRef, Date32Array, Int64Array, RecordBatch, RecordBatchReader, TimestampMicrosecondArray,
    TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
    ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader},
};
use arrow_schema::ArrowError;
use grappa_engine::ingest::{MemoryArray, MemoryData, MemoryInput, MemoryMatrix, ReadAt};
use pyo3::{buffer::PyBuffer, exceptions::PyValueError, prelude::*, types::PyCapsule};

/// The value of an option that is data.
#[derive(FromPyObject)]
pub struct Data<'py> {
    /// The name of the option.
    option: String,
    /// The index among the values of the option.
    index: usize,
    /// The name in messages.
    name: String,
    value: Value<'py>,
}

#[derive(FromPyObject)]
enum Value<'py> {
    Matrix(Matrix<'py>),
    Array(Array<'py>),
    Table(Table<'py>),
    Columns(Columns<'py>),
    Parquet(Parquet<'py>),
}

/// An array of numbers.
#[derive(FromPyObject)]
struct Array<'py> {
    /// The bytes of the elements: an array of bytes, or an object with a method `read(first_row, rows)`, which returns bytes.
    content: Bound<'py, PyAny>,
    descr: String,
    shape: Vec<u64>,
    column_major: bool,
    is_edge_index: bool,
}

/// A sparse matrix of SciPy.
#[derive(FromPyObject)]
struct Matrix<'py> {
    format: String,
    matrix_shape: [u64; 2],
    data: Array<'py>,
    lines: Array<'py>,
    others: Array<'py>,
}

/// A table, as an object with the Arrow C stream interface.
#[derive(FromPyObject)]
struct Table<'py> {
    table: Bound<'py, PyAny>,
}

/// A table of integers and dates.
#[derive(FromPyObject)]
struct Columns<'py> {
    columns: Vec<Column<'py>>,
}

/// A column of a table.
#[derive(FromPyObject)]
struct Column<'py> {
    name: String,
    /// An array of int64.
    values: Bound<'py, PyAny>,
    /// The unit of dates, as NumPy names it; none for integers.
    unit: Option<String>,
}

/// The bytes of a Parquet file.
#[derive(FromPyObject)]
struct Parquet<'py> {
    parquet: Bound<'py, PyAny>,
}

impl Data<'_> {
    /// The place among the options, and the input.
    pub fn into_input(self) -> PyResult<((String, usize), MemoryInput)> {
        let data = match self.value {
            Value::Array(array) => MemoryData::Array(array.into_memory()?),
            Value::Matrix(matrix) => MemoryData::Matrix(MemoryMatrix {
                format: matrix.format,
                shape: matrix.matrix_shape,
                data: matrix.data.into_memory()?,
                lines: matrix.lines.into_memory()?,
                others: matrix.others.into_memory()?,
            }),
            Value::Table(table) => table.into_memory()?,
            Value::Columns(table) => table.into_memory()?,
            Value::Parquet(Parquet { parquet: content }) => {
                let shape = vec![content.len()? as u64];
                let bytes =
                    Array { content, descr: "|u1".to_owned(), shape, column_major: false, is_edge_index: false };
                MemoryData::Parquet(bytes.into_memory()?)
            }
        };
        Ok(((self.option, self.index), MemoryInput { name: self.name.into(), data }))
    }
}

impl Array<'_> {
    fn into_memory(self) -> PyResult<MemoryArray> {
        let Self { content, descr, shape, column_major, is_edge_index } = self;
        let bytes: Arc<dyn ReadAt> = match PyBuffer::get(&content) {
            Ok(buffer) => Arc::new(Buffer(buffer)),
            Err(_) => Arc::new(Rows::new(&content, &shape)?),
        };
        Ok(MemoryArray { bytes, descr, shape, column_major, is_edge_index })
    }
}

impl Table<'_> {
    /// Reads the stream. Its batches share the memory of the table if this has Arrow columns.
    fn into_memory(self) -> PyResult<MemoryData> {
        let capsule = self.table.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
        let address = capsule.pointer_checked(Some(c"arrow_array_stream"))?.cast::<FFI_ArrowArrayStream>();
        // SAFETY: a capsule of this name has a stream of the Arrow C interface. The stream is moved out, which the interface allows once.
        let stream = unsafe { FFI_ArrowArrayStream::from_raw(address.as_ptr()) };
        let refused = |error: ArrowError| PyValueError::new_err(error.to_string());
        let reader = RecordBatchStreamReader::try_new(stream).map_err(refused)?;
        let schema = reader.schema();
        let batches = reader.collect::<Result<Vec<RecordBatch>, _>>().map_err(refused)?;
        Ok(MemoryData::Table(schema, batches))
    }
}

impl Columns<'_> {
    /// Copies the columns.
    fn into_memory(self) -> PyResult<MemoryData> {
        let columns = self.columns.into_iter().map(Column::into_array).collect::<PyResult<Vec<_>>>()?;
        let table = RecordBatch::try_from_iter(columns).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(MemoryData::Table(table.schema(), vec![table]))
    }
}

impl Column<'_> {
    fn into_array(self) -> PyResult<(String, ArrayRef)> {
        let values = PyBuffer::<i64>::get(&self.values)?.to_vec(self.values.py())?;
        let array: ArrayRef = match self.unit.as_deref() {
            None => Arc::new(Int64Array::from(values)),
            Some("s") => Arc::new(TimestampSecondArray::from(values)),
            Some("ms") => Arc::new(TimestampMillisecondArray::from(values)),
            Some("us") => Arc::new(TimestampMicrosecondArray::from(values)),
            Some("ns") => Arc::new(TimestampNanosecondArray::from(values)),
            Some("D") => {
                let days = values.into_iter().map(i32::try_from).collect::<Result<Vec<_>, _>>();
                let days =
                    days.map_err(|_| PyValueError::new_err(format!("{} has dates beyond 32 bits of days", self.name)))?;
                Arc::new(Date32Array::from(days))
            }
            Some(unit) => {
                return Err(PyValueError::new_err(format!("{} has dates in {unit}: give s, ms, us or ns", self.name)));
            }
        };
        Ok((self.name, array))
    }
}

/// An array of bytes that Python keeps alive.
struct Buffer(PyBuffer<u8>);

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len_bytes())
    }
}

impl ReadAt for Buffer {
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let end = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(into.len()));
        let Some(end) = end.filter(|&end| end <= self.0.len_bytes() && self.0.is_c_contiguous()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        // SAFETY: the view keeps the memory, which is one range without gaps. Whoever changes the array while it is ingested gets values of
        // before or after, as with any reader.
        let bytes = unsafe { slice::from_raw_parts(self.0.buf_ptr().cast::<u8>(), end) };
        into.copy_from_slice(&bytes[end - into.len()..]);
        Ok(())
    }
}

/// An array of another library, which is read by rows. Threads of the engine wait for the GIL here.
struct Rows {
    object: Py<PyAny>,
    rows: u64,
    row_bytes: u64,
}

impl Rows {
    fn new(object: &Bound<'_, PyAny>, shape: &[u64]) -> PyResult<Self> {
        let row_bytes = object.getattr("row_bytes")?.extract()?;
        Ok(Self { object: object.clone().unbind(), rows: shape.first().copied().unwrap_or(1), row_bytes })
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows of {} bytes", self.rows, self.row_bytes)
    }
}

impl ReadAt for Rows {
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset + into.len() as u64;
        if self.row_bytes == 0 || end > self.rows * self.row_bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (first, last) = (offset / self.row_bytes, end.div_ceil(self.row_bytes));
        let skip = (offset - first * self.row_bytes) as usize;
        Python::attach(|py| {
            let rows = self.object.bind(py).call_method1("read", (first, last - first))?;
            let bytes = rows.extract::<&[u8]>()?;
            let wanted = bytes.get(skip..).and_then(|bytes| bytes.get(..into.len()));
            let wanted = wanted.ok_or_else(|| PyValueError::new_err(format!("row {first} has too few bytes")))?;
            into.copy_from_slice(wanted);
            Ok(())
        })
        .map_err(|error: PyErr| io::Error::other(error.to_string()))
    }
}
