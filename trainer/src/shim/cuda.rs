//! Copies to a CUDA device, on a separate stream, from memory that is registered with it; and of few values from it.

use std::{
    ffi::{c_int, c_uint, c_void},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    ptr::NonNull,
};

use grappa_sampling::feed::{RegisterMemory, Registration};
use libloading::os::unix::Library;
use tch::{Device, Kind, Tensor};

// SAFETY: these are in shim.cpp, with these types.
unsafe extern "C" {
    fn grappa_pin(tensor: *const c_void) -> *mut c_void;
    fn grappa_pinned(values: i64) -> *mut c_void;
    fn grappa_new_stream(device: c_int) -> *mut c_void;
    fn grappa_free_stream(stream: *mut c_void);
    fn grappa_on_stream(
        stream: *const c_void,
        run: unsafe extern "C" fn(*mut c_void),
        context: *mut c_void,
    ) -> *mut c_void;
    fn grappa_record(device: c_int) -> *mut c_void;
    fn grappa_join(event: *mut c_void, tensors: *const *const c_void, count: usize) -> bool;
    fn grappa_wait(event: *const c_void) -> bool;
    fn grappa_abandon(event: *mut c_void);
}

/// The tensor in memory that CUDA devices copy from without the processor (pinned): itself, or a copy. None if there is no such
/// memory to be had.
///
/// `tch` passes an argument that libtorch warns about at each call.
pub(crate) fn pin(tensor: &Tensor) -> Option<Tensor> {
    // SAFETY: the tensor lives. A result is a new handle, for this one owner.
    unsafe {
        let pinned = NonNull::new(grappa_pin(tensor.as_ptr().cast()))?;
        Some(Tensor::from_ptr(pinned.as_ptr().cast()))
    }
}

/// A tensor of f32 in pinned memory, with any values. None if there is no such memory to be had.
pub(crate) fn pinned(values: i64) -> Option<Tensor> {
    // SAFETY: every number is a valid argument. A result is a new handle, for this one owner.
    unsafe { Some(Tensor::from_ptr(NonNull::new(grappa_pinned(values))?.as_ptr().cast())) }
}

/// A second stream of a CUDA device. Its work runs beside the work of the current stream.
#[derive(Debug)]
pub(crate) struct SideStream(NonNull<c_void>);

// SAFETY: it is the number of a stream, which any thread may use.
unsafe impl Send for SideStream {}
// SAFETY: as above; C++ reads it only.
unsafe impl Sync for SideStream {}

impl SideStream {
    /// A stream of the device with this index; none if libtorch has none.
    pub(crate) fn of_cuda(device: usize) -> Option<Self> {
        let device = c_int::try_from(device).ok()?;
        // SAFETY: every number is a valid argument.
        NonNull::new(unsafe { grappa_new_stream(device) }).map(Self)
    }

    /// Runs `work`, whose copies and computations go to this stream. Also returns an event for their end.
    ///
    /// # Panics
    /// If `work` panics, or libtorch cannot record the event.
    pub(crate) fn begin<R>(&self, work: impl FnOnce() -> R) -> (R, Done) {
        /// # Safety
        /// `call` points to a `&mut dyn FnMut()` that does not panic, and nothing else uses it during the call.
        unsafe extern "C" fn run(call: *mut c_void) {
            // SAFETY: as promised.
            unsafe { (*call.cast::<&mut dyn FnMut()>())() }
        }

        let (mut work, mut result) = (Some(work), None);
        let mut call: &mut dyn FnMut() = &mut || result = work.take().map(|work| catch_unwind(AssertUnwindSafe(work)));
        // SAFETY: the stream lives, and the call until this returns.
        let event = unsafe { grappa_on_stream(self.0.as_ptr(), run, (&raw mut call).cast()) };
        let done = NonNull::new(event).map(Done);
        match (result, done) {
            (Some(Ok(result)), Some(done)) => (result, done),
            (Some(Err(panic)), _) => resume_unwind(panic),
            _ => panic!("a stream of the device can't be used"),
        }
    }
}

impl Drop for SideStream {
    fn drop(&mut self) {
        // SAFETY: it was made by `grappa_new_stream`, and is freed once.
        unsafe { grappa_free_stream(self.0.as_ptr()) }
    }
}

/// The end of work on a stream. Dropping it waits for that end.
#[derive(Debug)]
pub(crate) struct Done(NonNull<c_void>);

// SAFETY: any thread may use an event, one after another.
unsafe impl Send for Done {}

impl Done {
    /// Makes the device's current stream wait for the end. Afterwards it may use `tensors`, which were made on the other stream.
    ///
    /// # Panics
    /// If libtorch fails.
    pub(crate) fn join(&self, tensors: &[&Tensor]) {
        let pointers: Vec<*const c_void> = tensors.iter().map(|tensor| tensor.as_ptr().cast()).collect();
        // SAFETY: the event lives as long as this; the tensors live.
        let joined = unsafe { grappa_join(self.0.as_ptr(), pointers.as_ptr(), pointers.len()) };
        assert!(joined, "the device's stream can't wait for another");
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// If the device has failed.
    fn wait(&self) {
        // SAFETY: the event lives as long as this.
        let waited = unsafe { grappa_wait(self.0.as_ptr()) };
        assert!(waited, "the device has failed");
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        // SAFETY: libtorch made the event, and this frees it once.
        unsafe { grappa_abandon(self.0.as_ptr()) }
    }
}

/// Two values that a device computes, on their way to the processor.
#[derive(Debug)]
pub(crate) struct Arriving {
    values: Tensor,
    /// The end of the copy; none if the values were on the processor.
    done: Option<Done>,
}

impl Arriving {
    /// Starts to copy the values, f64 of `[2]`.
    ///
    /// # Panics
    /// If libtorch cannot record the event.
    pub(crate) fn send(values: &Tensor) -> Self {
        let Device::Cuda(device) = values.device() else {
            return Self { values: values.shallow_clone(), done: None };
        };
        let values = values.to_device_(Device::Cpu, Kind::Double, true, false);
        // SAFETY: every number is a valid argument.
        let event = unsafe { grappa_record(c_int::try_from(device).expect("the device has computed")) };
        let event = NonNull::new(event).expect("libtorch records events");
        Self { values, done: Some(Done(event)) }
    }

    pub(crate) fn values(&self) -> [f64; 2] {
        if let Some(done) = &self.done {
            done.wait();
        }
        [0, 1].map(|at| self.values.double_value(&[at]))
    }
}

type SetDevice = unsafe extern "C" fn(c_int) -> c_int;
type Register = unsafe extern "C" fn(*mut c_void, usize, c_uint) -> c_int;
type Unregister = unsafe extern "C" fn(*mut c_void) -> c_int;

#[derive(Debug)]
pub(crate) struct CudaMemory {
    device: c_int,
    set_device: SetDevice,
    register: Register,
    unregister: Unregister,
}

/// Registered memory. Dropping it ends the registration.
struct Registered {
    address: usize,
    unregister: Unregister,
}

impl CudaMemory {
    /// For the device with this index; none if CUDA's runtime is not loaded.
    pub(crate) fn of_cuda(device: usize) -> Option<Self> {
        let process = Library::this();
        // SAFETY: these are functions of CUDA's runtime, with the types that its headers give them. libtorch has loaded it,
        // for good.
        unsafe {
            Some(Self {
                device: c_int::try_from(device).ok()?,
                set_device: *process.get(c"cudaSetDevice").ok()?,
                register: *process.get(c"cudaHostRegister").ok()?,
                unregister: *process.get(c"cudaHostUnregister").ok()?,
            })
        }
    }
}

impl RegisterMemory for CudaMemory {
    fn register(&self, memory: &[u8]) -> Option<Registration> {
        /// From any context.
        const PORTABLE: c_uint = 1;
        let address = memory.as_ptr().cast_mut();
        // SAFETY: the memory is there, and stays until `Registered` is dropped, as the trait says. To be registered changes
        // nothing that this program sees.
        let is_registered = unsafe {
            (self.set_device)(self.device) == 0 && (self.register)(address.cast(), memory.len(), PORTABLE) == 0
        };
        is_registered
            .then(|| -> Registration { Box::new(Registered { address: address.addr(), unregister: self.unregister }) })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: it is registered, and its memory is still there.
        unsafe { (self.unregister)(self.address as *mut c_void) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{self, Cuda};

    #[test]
    fn values_that_a_device_still_computes_arrive() {
        if let Cuda::Unusable { reason } = runtime::cuda() {
            grappa_skip::skip!("CUDA: {reason}");
        }
        let device = Device::Cuda(0);
        for size in [1, 4096] {
            let ones = Tensor::ones([size, size], (Kind::Float, device));
            let sum = ones.matmul(&ones).sum(Kind::Double);
            let arriving = Arriving::send(&Tensor::stack(&[&sum, &(&sum * 2.0)], 0));
            let sum = size.pow(3) as f64;
            assert_eq!(arriving.values(), [sum, 2.0 * sum]);
            assert_eq!(arriving.values(), [sum, 2.0 * sum], "again");
        }
    }

    #[test]
    fn values_of_the_processor_are_there() {
        let arriving = Arriving::send(&Tensor::from_slice(&[1.5, 2.5]));
        assert_eq!(arriving.values(), [1.5, 2.5]);
    }

    #[test]
    fn side_stream_copies_are_complete_after_the_join() {
        if let Cuda::Unusable { reason } = runtime::cuda() {
            grappa_skip::skip!("CUDA: {reason}");
        }
        let device = Device::Cuda(0);
        let stream = SideStream::of_cuda(0).expect("there is a device");
        let memory = CudaMemory::of_cuda(0).expect("the runtime is loaded");
        for size in [1, 1 << 20] {
            let values = Tensor::arange(size, (Kind::Float, Device::Cpu));
            let bytes = 4 * values.numel();
            // SAFETY: the tensor's values, which live until the end of the round.
            let registration = memory.register(unsafe { std::slice::from_raw_parts(values.data_ptr().cast(), bytes) });
            let is_pinned = || pin(&values).expect("there is memory").data_ptr() == values.data_ptr();
            assert!(registration.is_some() && is_pinned(), "{size}");
            let busy = Tensor::ones([2048, 2048], (Kind::Float, device));
            let busy = busy.matmul(&busy);
            let (copied, done) = stream.begin(|| values.to_device_(device, Kind::Float, true, false));
            done.join(&[&copied]);
            let sum = (copied + busy.get(0).get(0) * 0.0).sum(Kind::Double);
            assert_eq!(sum.double_value(&[]), (size * (size - 1) / 2) as f64);
            let (_unused, done) = stream.begin(|| values.to_device_(device, Kind::Float, true, false));
            drop(done);
            drop(registration);
            assert!(!is_pinned(), "{size}");
        }
    }
}
