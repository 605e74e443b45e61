//! Functions of libtorch that `tch` does not bind: loading the CUDA half, the version, functions with our own backward pass, values of
//! tensors as slices, streams of devices, and libtorch's threads. All `unsafe` code of the trainer is here, except for the vector
//! instructions of `grappa-kernels`.

#![expect(unsafe_code, reason = "calls into the dynamic loader and libtorch's C and C++ interfaces")]

pub(crate) mod c10d;
pub(crate) mod cuda;
pub(crate) mod memory;

use std::{
    error::Error,
    ffi::{c_int, c_void},
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    ptr, slice,
    sync::{Arc, Mutex, PoisonError},
};

use half::bf16;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use tch::{Device, Kind, Tensor};

// SAFETY: the first is declared in libtorch's torch/csrc/inductor/aoti_torch/c/shim.h as `uint64_t
// aoti_torch_abi_version()` and returns a constant; the others are in shim.cpp, with these types. `grappa_gradients_are_on`
// reads a flag of the thread.
unsafe extern "C" {
    safe fn aoti_torch_abi_version() -> u64;
    safe fn grappa_gradients_are_on() -> bool;
    fn grappa_attach(
        outputs: *const *mut c_void,
        output_count: usize,
        inputs: *const *const c_void,
        input_count: usize,
        context: *mut c_void,
        backward: unsafe extern "C" fn(*mut c_void, *const *mut c_void, *const bool, *mut *mut c_void) -> bool,
        drop: unsafe extern "C" fn(*mut c_void),
    );
    fn grappa_set_gradient(tensor: *mut c_void, gradient: *const c_void);
    fn grappa_view_memory(
        data: *mut c_void,
        rows: i64,
        columns: i64,
        is_bf16: bool,
        owner: *mut c_void,
        drop: unsafe extern "C" fn(*mut c_void),
    ) -> *mut c_void;
    fn _exit(status: c_int) -> !;
    fn grappa_on_each_thread(run: unsafe extern "C" fn(*const c_void), context: *const c_void);
}

/// Ends the process without running static destructors.
pub(crate) fn exit_at_once(code: u8) -> ! {
    // SAFETY: it has no conditions.
    unsafe { _exit(code.into()) }
}

/// The version of the loaded libtorch: major, minor, patch. They are the top three bytes of the headers' TORCH_ABI_VERSION.
pub(crate) fn libtorch_version() -> [u8; 3] {
    let [major, minor, patch, ..] = aoti_torch_abi_version().to_be_bytes();
    [major, minor, patch]
}

/// Loads libtorch_cuda.so from the folder of libtorch, and keeps it loaded. Its static initializers register the CUDA kernels, so it must
/// be loaded before the first use of CUDA.
pub(crate) fn load_cuda() -> Result<(), String> {
    // SAFETY: the library is libtorch's own and was built together with the libtorch_cpu.so that is loaded, which is what
    // its initializers expect; PyTorch loads it in the same way. It is never unloaded.
    let library = unsafe { Library::open(Some("libtorch_cuda.so"), RTLD_NOW | RTLD_GLOBAL) };
    library.map(mem::forget).map_err(|error| match error.source() {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    })
}

type Backward = dyn FnMut(&[Option<Tensor>], &[bool]) -> Vec<Option<Tensor>> + Send;

struct Context {
    outputs: usize,
    inputs: usize,
    backward: Box<Backward>,
}

/// Whether a function of `inputs` has a backward pass: autograd is on, and an input has a gradient.
pub(crate) fn gradients_are_recorded(inputs: &[&Tensor]) -> bool {
    grappa_gradients_are_on() && inputs.iter().any(|input| input.requires_grad())
}

/// Adds a node to the autograd graph: `outputs`, which were computed without autograd, become functions of `inputs`. `backward` computes the
/// gradients of the inputs from the gradients of the outputs (None means zeros). Its second argument says for each input whether its
/// gradient is wanted. It is dropped after the backward pass, or at once if [no gradients are recorded](gradients_are_recorded). It may
/// keep an output only [`Tensor::detach`]ed; otherwise both would keep each other alive for ever.
///
/// A panic of the backward pass becomes an error of libtorch, and so of `Tensor::backward`.
pub(crate) fn with_gradients(
    outputs: &[&Tensor],
    inputs: &[&Tensor],
    backward: impl FnMut(&[Option<Tensor>], &[bool]) -> Vec<Option<Tensor>> + Send + 'static,
) {
    if !gradients_are_recorded(inputs) {
        return;
    }
    let context = Box::new(Context { outputs: outputs.len(), inputs: inputs.len(), backward: Box::new(backward) });
    let output_pointers: Vec<*mut c_void> = outputs.iter().map(|output| output.as_ptr().cast_mut().cast()).collect();
    let input_pointers: Vec<*const c_void> = inputs.iter().map(|input| input.as_ptr().cast()).collect();
    // SAFETY: all pointers are of tensors that live; the context is a box of what both functions take it for, and C++
    // frees it once, by `drop_context`.
    unsafe {
        grappa_attach(
            output_pointers.as_ptr(),
            output_pointers.len(),
            input_pointers.as_ptr(),
            input_pointers.len(),
            Box::into_raw(context).cast(),
            run_backward,
            drop_context,
        );
    }
}

/// [`with_gradients`] of one output, whose gradient is never missing, and contiguous.
pub(crate) fn with_gradient(
    output: Tensor,
    inputs: &[&Tensor],
    mut backward: impl FnMut(&Tensor, &[bool]) -> Vec<Option<Tensor>> + Send + 'static,
) -> Tensor {
    with_gradients(&[&output], inputs, move |gradients, needs_gradient| match gradients {
        [Some(gradient)] => backward(&gradient.contiguous(), needs_gradient),
        _ => needs_gradient.iter().map(|_| None).collect(),
    });
    output
}

/// # Safety
/// `context` is a [`Context`] that nothing else uses meanwhile; `gradients` are tensors or null, as many as its outputs;
/// `needs_gradient` and `results` are as many as its inputs.
unsafe extern "C" fn run_backward(
    context: *mut c_void,
    gradients: *const *mut c_void,
    needs_gradient: *const bool,
    results: *mut *mut c_void,
) -> bool {
    // SAFETY: as promised. Autograd runs a node once at a time.
    let (context, gradients, needs_gradient, results) = unsafe {
        let context = &mut *context.cast::<Context>();
        let (outputs, inputs) = (context.outputs, context.inputs);
        (
            context,
            slice::from_raw_parts(gradients, outputs),
            slice::from_raw_parts(needs_gradient, inputs),
            slice::from_raw_parts_mut(results, inputs),
        )
    };
    let gradients = gradients.iter().map(|gradient| {
        // SAFETY: a pointer that is not null points to a tensor. This makes a second handle to it.
        (!gradient.is_null()).then(|| unsafe { Tensor::clone_from_ptr(gradient.cast()) })
    });
    let gradients: Vec<Option<Tensor>> = gradients.collect();
    let Ok(computed) = catch_unwind(AssertUnwindSafe(|| {
        let computed = (context.backward)(&gradients, needs_gradient);
        assert_eq!(computed.len(), needs_gradient.len(), "a gradient for each input");
        computed
    })) else {
        return false;
    };
    for (slot, result) in results.iter_mut().zip(computed) {
        // The handle goes to C++, which deletes it.
        *slot = result.map_or(ptr::null_mut(), |tensor| {
            let pointer = tensor.as_ptr().cast_mut().cast();
            mem::forget(tensor);
            pointer
        });
    }
    true
}

/// # Safety
/// `context` is a boxed [`Context`] that nothing uses any more.
unsafe extern "C" fn drop_context(context: *mut c_void) {
    // SAFETY: as promised.
    drop(unsafe { Box::from_raw(context.cast::<Context>()) });
}

pub(crate) trait Values: Send + Sync + 'static {
    /// The bytes of the values, row by row, aligned for their type. Each call returns the same memory.
    fn bytes(&self) -> &[u8];
}

/// A tensor `[rows, columns]` of f32 or bf16 that views the values of `owner`, without a copy. The tensor keeps the owner alive.
///
/// # Panics
/// If the number of values does not match.
pub(crate) fn view_memory<V: Values>(owner: Arc<V>, rows: usize, columns: usize, kind: Kind) -> Tensor {
    let bytes = owner.bytes();
    let is_bf16 = kind == Kind::BFloat16;
    assert!(is_bf16 || kind == Kind::Float, "a tensor of {kind:?}");
    let value_bytes = if is_bf16 { 2 } else { 4 };
    assert_eq!(bytes.len(), rows * columns * value_bytes, "bytes of {rows} x {columns} values");
    let data = bytes.as_ptr();
    assert!(data.addr().is_multiple_of(value_bytes), "values are aligned");

    /// # Safety
    /// `owner` comes from `Arc::into_raw` of such an owner, and is dropped once.
    unsafe extern "C" fn drop_owner<V>(owner: *mut c_void) {
        // SAFETY: as promised.
        drop(unsafe { Arc::from_raw(owner.cast::<V>().cast_const()) });
    }

    let owner = Arc::into_raw(owner).cast_mut().cast();
    // SAFETY: the values stay where they are and what they are while the owner lives, which C++ drops once, on any thread.
    // Nobody writes to the tensor: like what `values` reads, it is an input of a step.
    let tensor = unsafe {
        grappa_view_memory(data.cast_mut().cast(), rows as i64, columns as i64, is_bf16, owner, drop_owner::<V>)
    };
    if tensor.is_null() {
        // SAFETY: C++ did not take it.
        unsafe { drop_owner::<V>(owner) }
        panic!("libtorch makes no tensor of {rows} x {columns} values");
    }
    // SAFETY: C++ made it with `new` and gives it away.
    unsafe { Tensor::from_ptr(tensor.cast()) }
}

/// Makes backward passes add the gradient of the leaf `tensor` to `gradient`.
pub(crate) fn set_gradient(tensor: &Tensor, gradient: &Tensor) {
    assert!(tensor.is_leaf() && tensor.size() == gradient.size() && tensor.device() == gradient.device());
    // SAFETY: both live.
    unsafe { grappa_set_gradient(tensor.as_ptr().cast_mut().cast(), gradient.as_ptr().cast()) }
}

/// Calls `run` once on each of libtorch's threads and waits for all of them.
///
/// # Panics
/// If one of the calls panics.
pub(crate) fn on_each_thread(run: &(dyn Fn() + Sync)) {
    type Run<'a> = &'a (dyn Fn() + Sync);

    /// # Safety
    /// `context` is the address of a `Run` that does not panic.
    unsafe extern "C" fn call(context: *const c_void) {
        // SAFETY: as promised.
        unsafe { (*context.cast::<Run<'_>>())() }
    }

    let panic = Mutex::new(None);
    let caught: Run<'_> = &|| {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
            *panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(payload);
        }
    };
    // SAFETY: `caught` lives until the call returns, which is after all threads are done with it, and may be shared
    // between threads.
    unsafe { grappa_on_each_thread(call, ptr::from_ref(&caught).cast()) }
    if let Some(payload) = panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
        resume_unwind(payload);
    }
}

/// A type of values of tensors and kernels.
pub(crate) trait Element: grappa_kernels::Element {
    const KIND: Kind;
}

impl Element for f32 {
    const KIND: Kind = Kind::Float;
}

impl Element for bf16 {
    const KIND: Kind = Kind::BFloat16;
}

/// The values of a tensor.
///
/// # Panics
/// If it is not contiguous, not in the processor's memory, or of another type.
pub(crate) fn values<T: Element>(tensor: &Tensor) -> &[T] {
    check::<T>(tensor);
    if tensor.numel() == 0 {
        return &[];
    }
    // SAFETY: the tensor is contiguous and has `numel` values of that type. Nothing writes to them meanwhile: kernels
    // read inputs of a step, tensors saved by autograd, and parameters. All of these change only between steps, on the
    // same thread.
    unsafe { slice::from_raw_parts(tensor.data_ptr().cast(), tensor.numel()) }
}

/// The values of a tensor, for writing. It is new, so that nothing else refers to it, or nothing uses its values meanwhile.
///
/// # Panics
/// As [`values`] does.
pub(crate) fn values_mut<T: Element>(tensor: &mut Tensor) -> &mut [T] {
    check::<T>(tensor);
    if tensor.numel() == 0 {
        return &mut [];
    }
    // SAFETY: as above; the caller has the only handle, or works on parameters and gradients at the end of a step. Memory from
    // libtorch's allocator, in another language, is initialized as far as Rust can know, and any bits are a value.
    unsafe { slice::from_raw_parts_mut(tensor.data_ptr().cast(), tensor.numel()) }
}

fn check<T: Element>(tensor: &Tensor) {
    assert_eq!(tensor.kind(), T::KIND, "type of a tensor's values");
    assert_eq!(tensor.device(), Device::Cpu, "device of a tensor's values");
    assert!(tensor.is_contiguous(), "a tensor of stride {:?} is not contiguous", tensor.stride());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of words.
    struct Owner(Vec<u32>);

    impl Values for Owner {
        fn bytes(&self) -> &[u8] {
            // SAFETY: a word is four initialized bytes.
            unsafe { slice::from_raw_parts(self.0.as_ptr().cast(), 4 * self.0.len()) }
        }
    }

    #[test]
    fn memory_that_a_tensor_looks_at_lives_as_long_as_the_last_of_its_views() {
        let owner = Arc::new(Owner((0..6).map(|i| (i as f32).to_bits()).collect()));
        let whole = view_memory(owner.clone(), 3, 2, Kind::Float);
        assert_eq!(whole.size(), [3, 2]);
        assert_eq!(values::<f32>(&whole).as_ptr().addr(), owner.0.as_ptr().addr(), "without a copy");
        let last_row = whole.narrow(0, 2, 1);
        drop(whole);
        assert_eq!(Arc::strong_count(&owner), 2);
        assert_eq!(values::<f32>(&last_row), [4.0, 5.0]);
        drop(last_row);
        assert_eq!(Arc::strong_count(&owner), 1);

        let none = view_memory(Arc::new(Owner(Vec::new())), 0, 7, Kind::Float);
        assert_eq!(none.size(), [0, 7]);
    }

    #[test]
    #[should_panic(expected = "bytes of 3 x 3 values")]
    fn a_tensor_of_more_values_than_there_are_is_refused() {
        let _ = view_memory(Arc::new(Owner(vec![0; 8])), 3, 3, Kind::Float);
    }
}
