//! Arrays that Python reads and writes without a copy.

#![expect(unsafe_code, reason = "the buffer protocol passes addresses")]

use std::{
    any::Any,
    ffi::CStr,
    os::raw::c_int,
    ptr, slice,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use grappa_engine::{Batch, sample::feed::RowContent};
use pyo3::{
    buffer::{Element, PyBuffer},
    exceptions::PyBufferError,
    ffi,
    prelude::*,
};

use crate::process::OfProcess;

/// A type of values.
pub trait Value: Any + Send {
    /// As `struct` of Python names it on Linux.
    const FORMAT: &'static CStr;
}

impl Value for f32 {
    const FORMAT: &'static CStr = c"f";
}

impl Value for i64 {
    const FORMAT: &'static CStr = c"l";
}

impl Value for u64 {
    const FORMAT: &'static CStr = c"L";
}

impl Value for u8 {
    const FORMAT: &'static CStr = c"B";
}

/// The number of batches whose memory Python may have at the same time: the one in use, and the one that follows.
pub const LEASES_MAX: usize = 2;

/// Counts the batches of a loader whose memory Python has.
#[derive(Default)]
pub struct Leases(AtomicUsize);

struct Lease(Arc<Leases>);

impl Lease {
    fn new(leases: &Arc<Leases>) -> Self {
        leases.0.fetch_add(1, Ordering::Relaxed);
        Self(leases.clone())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A matrix or vector in row-major order, without gaps. `numpy.asarray(array)` and `torch.from_numpy(numpy.asarray(array))` share
/// its memory, and keep it alive.
#[pyclass(frozen, module = "grappa")]
pub struct Array {
    #[expect(dead_code, reason = "it keeps the memory until the last view dies")]
    owner: Box<dyn Any + Send>,
    /// The first value. Nothing in Rust reads or writes the values any more.
    start: *mut u8,
    format: &'static CStr,
    value_bytes: usize,
    shape: Vec<ffi::Py_ssize_t>,
    strides: Vec<ffi::Py_ssize_t>,
}

// SAFETY: the memory belongs to the array, and Rust does not touch it. Python orders its own accesses.
unsafe impl Send for Array {}
// SAFETY: as above; all methods take what never changes.
unsafe impl Sync for Array {}

impl Array {
    /// A matrix of `shape` with these values.
    pub fn new<T: Value>(mut values: Vec<T>, shape: &[usize]) -> Self {
        let start = values.as_mut_ptr();
        Self::at(start, Box::new(values), shape)
    }

    pub fn vector<T: Value>(values: Vec<T>) -> Self {
        let len = values.len();
        Self::new(values, &[len])
    }

    /// The features of a batch, one row per node, of 32-bit floats, with their node type and their content: then its pre-aggregated features
    /// if it has them. None if it has no features. They are copied only if the loader would wait for the memory of batches that Python has kept.
    pub fn features(batch: Batch, leases: &Arc<Leases>) -> Vec<(usize, RowContent, Self)> {
        let mut leased = (Lease::new(leases), batch);
        let is_copied = leases.0.load(Ordering::Relaxed) > LEASES_MAX;
        let Some(features) = leased.1.features_mut() else { return Vec::new() };
        let mut first = 0;
        let shapes = features.shapes().map(|(node_type, content, shape)| {
            let before = first;
            first += shape[0] * shape[1];
            (node_type, content, shape, before)
        });
        let shapes: Vec<_> = shapes.collect();
        if is_copied {
            let values = features.f32s();
            let copied = shapes.into_iter().map(|(node_type, content, shape, first)| {
                (node_type, content, Self::new(values[first..first + shape[0] * shape[1]].to_vec(), &shape))
            });
            return copied.collect();
        }
        let start = features.bytes_mut().as_mut_ptr().cast::<f32>();
        let leased = Arc::new(OfProcess::new(leased));
        let shared = shapes.into_iter().map(|(node_type, content, shape, first)| {
            (node_type, content, Self::at(start.wrapping_add(first), Box::new(leased.clone()), &shape))
        });
        shared.collect()
    }

    fn at<T: Value>(start: *mut T, owner: Box<dyn Any + Send>, shape: &[usize]) -> Self {
        let (format, value_bytes) = (T::FORMAT, size_of::<T>());
        let mut strides = vec![0; shape.len()];
        let mut stride = value_bytes;
        for (at, size) in shape.iter().enumerate().rev() {
            strides[at] = stride as ffi::Py_ssize_t;
            stride *= size;
        }
        let shape = shape.iter().map(|&size| size as ffi::Py_ssize_t).collect();
        Self { owner, start: start.cast(), format, value_bytes, shape, strides }
    }

    fn bytes(&self) -> ffi::Py_ssize_t {
        self.shape.iter().product::<ffi::Py_ssize_t>() * self.value_bytes as ffi::Py_ssize_t
    }
}

#[pymethods]
impl Array {
    /// The size of each dimension.
    #[getter]
    fn shape(&self) -> Vec<isize> {
        self.shape.clone()
    }

    /// Bytes of all values.
    #[getter]
    fn nbytes(&self) -> isize {
        self.bytes()
    }

    fn __repr__(&self) -> String {
        format!("grappa.Array(shape={:?}, format={:?})", self.shape, self.format)
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no buffer to fill"));
        }
        let array = slf.get();
        let asks = |flag| flags & flag == flag;
        // SAFETY: Python passes a buffer that this call fills. Addresses stay valid, because `obj` keeps the array alive.
        unsafe {
            (*view).buf = array.start.cast();
            (*view).len = array.bytes();
            (*view).readonly = 0;
            (*view).itemsize = array.value_bytes as ffi::Py_ssize_t;
            (*view).format = if asks(ffi::PyBUF_FORMAT) { array.format.as_ptr().cast_mut() } else { ptr::null_mut() };
            (*view).ndim = array.shape.len() as c_int;
            (*view).shape = if asks(ffi::PyBUF_ND) { array.shape.as_ptr().cast_mut() } else { ptr::null_mut() };
            (*view).strides = match asks(ffi::PyBUF_STRIDES) {
                true => array.strides.as_ptr().cast_mut(),
                false => ptr::null_mut(),
            };
            (*view).suboffsets = ptr::null_mut();
            (*view).internal = ptr::null_mut();
            (*view).obj = slf.into_ptr();
        }
        Ok(())
    }
}

/// The values of an array of another library.
pub fn values<T: Element>(array: &PyBuffer<T>) -> PyResult<&[T]> {
    check(array)?;
    if array.item_count() == 0 {
        return Ok(&[]);
    }
    // SAFETY: the buffer keeps the memory: one range of as many values of this type, which Python checked. Any bits are a value of the
    // types of numbers that it has. Whoever writes to the array meanwhile, on another thread, gets values of before or after.
    Ok(unsafe { slice::from_raw_parts(array.buf_ptr().cast(), array.item_count()) })
}

/// The values of an array of another library, for writing. No other argument of a function may be a part of it.
#[expect(
    clippy::mut_from_ref,
    reason = "the array belongs to Python, and the result to the only argument that names it"
)]
pub fn values_mut<T: Element>(array: &PyBuffer<T>) -> PyResult<&mut [T]> {
    check(array)?;
    if array.readonly() {
        return Err(PyBufferError::new_err("an array for results is read-only"));
    }
    if array.item_count() == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as above; the caller made the array for the results.
    Ok(unsafe { slice::from_raw_parts_mut(array.buf_ptr().cast(), array.item_count()) })
}

fn check<T: Element>(array: &PyBuffer<T>) -> PyResult<()> {
    match array.is_c_contiguous() {
        true => Ok(()),
        false => Err(PyBufferError::new_err(format!("an array with strides {:?} has gaps", array.strides()))),
    }
}
