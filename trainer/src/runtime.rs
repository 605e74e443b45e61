//! libtorch at run time: its version, its threads and memory, and the device to train on.
//!
//! One build serves machines with and without a GPU. It is linked to the CPU half of libtorch only. The CUDA half is loaded at start,
//! if it and its dependencies are installed. Loading takes about a second, and a failed attempt a millisecond. With `--device cpu`
//! there is no attempt.

use std::{
    any::Any,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::OnceLock,
    thread,
};

use bytemuck::NoUninit;
use grappa_run::config::DeviceChoice;
use tch::{Device, Kind, Tensor, kind::Element};

use crate::{
    Error, Result,
    shim::{self, memory},
};

/// Whether libtorch can use CUDA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cuda {
    /// It can.
    Usable {
        /// Number of devices, at least one.
        devices: usize,
    },
    /// It cannot.
    Unusable {
        /// The reason, and a remedy.
        reason: String,
    },
}

/// Ends the process. The static destructors of libtorch are left out: they remove each operator from its tables, which takes 0.1 s, and
/// threads of c10d may still need what they destroy. Standard output must have been flushed.
pub fn exit(code: u8) -> ! {
    shim::exit_at_once(code)
}

/// The version of libtorch in use, such as `2.11.0`.
pub fn libtorch_version() -> String {
    shim::libtorch_version().map(|part| part.to_string()).join(".")
}

/// Number of threads per operation of libtorch. OMP_NUM_THREADS sets its default.
pub fn threads() -> usize {
    usize::try_from(tch::get_num_threads()).unwrap_or(1)
}

/// Prepares the process for training or inference: `threads` per operation of libtorch, which sleep early when idle, and an allocator that
/// keeps freed memory within a budget of `memory` bytes. Call it once.
///
/// # Panics
/// If `threads` is 0.
pub fn prepare(threads: usize, memory: u64) {
    set_threads(threads);
    keep_freed_memory(memory);
    rest_when_idle();
}

/// Sets the number of threads per operation of libtorch, and registers them for our kernels: with one pool, no thread waits for a
/// processor that a thread of the other pool spins on.
///
/// # Panics
/// If it is 0.
pub fn set_threads(threads: usize) {
    assert!(threads > 0, "no threads");
    tch::set_num_threads(i32::try_from(threads).unwrap_or(i32::MAX));
    grappa_kernels::use_threads(shim::on_each_thread);
}

/// Makes the allocators keep the memory of freed tensors for the next ones. Each training step allocates and frees the same tensors. If
/// their memory returned to the operating system, clearing and mapping it again would take a tenth of a step with tensors of some
/// megabytes, and half of one with tensors of 100 MB. With a small budget of `memory` bytes, only tensors keep larger blocks than a 64th of
/// it.
pub fn keep_freed_memory(memory: u64) {
    memory::keep_freed(memory);
}

/// Returns freed memory to the operating system if it is more than `bytes`.
pub(crate) fn release_memory_above(bytes: u64) {
    if memory::block_bytes().spare + memory::free_heap_bytes() > bytes {
        release_memory();
    }
}

/// Returns freed memory to the operating system: kept blocks of large tensors, and free pages of the C library's heap.
pub(crate) fn release_memory() {
    memory::release_kept();
    memory::trim_heap();
}

/// Makes libtorch's idle threads sleep early, so that threads that sample and read get their processors.
///
/// Idle threads of OpenMP spin for some milliseconds before they sleep. GCC's OpenMP library spins only 1/300 of that if it manages more
/// threads than there are processors. It does not know of the threads that sample and read. So this function gives it more threads to
/// manage, which never have work. Out of core on two cores, an epoch gets a tenth shorter. The function has no effect with another
/// OpenMP library, or if OMP_WAIT_POLICY or GOMP_SPINCOUNT is set.
fn rest_when_idle() {
    // If this fails, threads spin longer.
    let _ = thread::Builder::new().name("idle".to_owned()).spawn(|| {
        shim::on_each_thread(&|| ());
        // OpenMP's threads exist as long as the thread that created them.
        loop {
            thread::park();
        }
    });
}

/// Whether CUDA can be used. The first call loads the CUDA half of libtorch. It must come before any other use of CUDA.
pub fn cuda() -> &'static Cuda {
    static CUDA: OnceLock<Cuda> = OnceLock::new();
    CUDA.get_or_init(|| match shim::load_cuda() {
        Err(reason) => Cuda::Unusable {
            reason: format!(
                "{reason} (the installed PyTorch lacks CUDA libraries: `pip install torch==2.11.0` installs all of them; in a checkout, \
                 `cargo xtask setup --cuda`)"
            ),
        },
        Ok(()) => match usize::try_from(tch::Cuda::device_count()) {
            Ok(devices @ 1..) => Cuda::Usable { devices },
            _ => Cuda::Unusable {
                reason: "libtorch found no CUDA device (`nvidia-smi` shows whether the driver does)".to_owned(),
            },
        },
    })
}

/// Runs `work` and turns a panic of libtorch for lack of memory into an error with a `remedy`. A panic hook can recognize these panics
/// with [`is_out_of_memory`].
///
/// # Errors
/// Those of `work`, and [`Error::OutOfMemory`].
///
/// # Panics
/// If `work` panics for another reason.
pub fn catch_out_of_memory<T, E: From<Error>>(
    remedy: &'static str,
    work: impl FnOnce() -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    // Values that `work` borrowed may be inconsistent after a panic. The caller ends with the error and does not use them.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(panic) => match out_of_memory(&*panic) {
            Some(message) => Err(Error::OutOfMemory { message, remedy }.into()),
            None => resume_unwind(panic),
        },
    }
}

/// Whether a panic is one of libtorch for lack of memory.
pub fn is_out_of_memory(payload: &(dyn Any + Send)) -> bool {
    out_of_memory(payload).is_some()
}

/// libtorch's message about the lack of memory, if the panic is one.
fn out_of_memory(payload: &(dyn Any + Send)) -> Option<String> {
    let text = payload.downcast_ref::<String>()?;
    // Messages of c10's allocators for CUDA and for the processor, and of C++'s own allocator.
    let patterns = ["CUDA out of memory", "can't allocate memory", "not enough memory", "std::bad_alloc"];
    let start = patterns.iter().filter_map(|pattern| text.find(pattern)).min()?;
    // The message is quoted, and a trace of C++ follows.
    let end = text[start..].find("\\n").map_or(text.len(), |length| start + length);
    let sentences = &text[start..end];
    // CUDA's message continues with advice on environment variables.
    let end = sentences.find(" See documentation").unwrap_or(sentences.len());
    Some(sentences[..end].trim_end_matches(['"', ')', '.']).to_owned())
}

/// Copies a tensor from the processor to a device. A copy to a GPU is asynchronous, from pinned memory.
pub(crate) fn send(tensor: Tensor, device: Device) -> Tensor {
    match device {
        Device::Cpu => tensor,
        _ => {
            let tensor = shim::cuda::pin(&tensor).unwrap_or(tensor);
            tensor.to_device_(device, tensor.kind(), true, false)
        }
    }
}

/// Copies several arrays from the processor to a device, as tensors of one dimension. They share one copy: to start a copy takes longer
/// than to copy an array of a batch.
pub(crate) fn send_together<T: Element + NoUninit>(arrays: &[impl AsRef<[T]>], device: Device) -> Vec<Tensor> {
    /// Tensors of all types can begin here.
    const ALIGNMENT: usize = 16;
    let arrays = arrays.iter().map(|array| bytemuck::cast_slice(array.as_ref()));
    let places = arrays.clone().scan(0, |end: &mut usize, array: &[u8]| {
        let begin = *end;
        *end = (begin + array.len()).next_multiple_of(ALIGNMENT);
        Some(begin..begin + array.len())
    });
    let places: Vec<Range<usize>> = places.collect();
    let size = places.last().map_or(0, |last| last.end.next_multiple_of(ALIGNMENT));
    let count = (size / size_of::<f32>()) as i64;
    let pinned = match device {
        Device::Cpu => None,
        _ => shim::cuda::pinned(count),
    };
    let mut all = pinned.unwrap_or_else(|| Tensor::empty([count], (Kind::Float, Device::Cpu)));
    let bytes = bytemuck::cast_slice_mut::<f32, u8>(shim::values_mut(&mut all));
    for (array, place) in arrays.zip(&places) {
        bytes[place.clone()].copy_from_slice(array);
    }
    let all = all.to_device_(device, Kind::Float, true, false);
    let tensors = places.iter().map(|place| {
        let [start, length] = [place.start, place.len()].map(|bytes| (bytes / size_of::<f32>()) as i64);
        all.narrow(0, start, length).view_dtype(T::KIND)
    });
    tensors.collect()
}

/// All usable devices, the processor first.
pub fn devices() -> Vec<Device> {
    let cuda_devices = match cuda() {
        Cuda::Usable { devices } => *devices,
        Cuda::Unusable { .. } => 0,
    };
    [Device::Cpu].into_iter().chain((0..cuda_devices).map(Device::Cuda)).collect()
}

/// The device to train on. For the processor, it does not load CUDA.
///
/// # Errors
/// If the choice is a CUDA device that does not exist or cannot be used.
pub fn device(choice: DeviceChoice) -> Result<Device> {
    match choice {
        DeviceChoice::Cpu => Ok(Device::Cpu),
        DeviceChoice::Auto => Ok(cuda_device(0, cuda()).unwrap_or(Device::Cpu)),
        DeviceChoice::Cuda(index) => cuda_device(index.unwrap_or(0), cuda()),
    }
}

/// The device of process number `local_rank` of a host. Without an index, each has a GPU of its
/// own.
///
/// # Errors
/// As [`device`]; without an index, if there are GPUs, but fewer than processes.
pub fn local_device(choice: DeviceChoice, local_rank: u32) -> Result<Device> {
    match (choice, device(choice)?) {
        (DeviceChoice::Auto | DeviceChoice::Cuda(None), Device::Cuda(_)) => {
            let visible = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
            cuda_device(local_index(local_rank, &visible), cuda())
        }
        (_, device) => Ok(device),
    }
}

/// The index of the GPU of process number `local_rank` of a host, if its environment makes the GPUs `visible` visible. SLURM can give each
/// process one GPU (`--gpus-per-task 1`), which is the only one that it sees.
fn local_index(local_rank: u32, visible: &str) -> usize {
    match visible.split(',').count() {
        1 if !visible.is_empty() => 0,
        _ => local_rank as usize,
    }
}

fn cuda_device(index: usize, cuda: &Cuda) -> Result<Device> {
    match cuda {
        Cuda::Usable { devices } if index < *devices => Ok(Device::Cuda(index)),
        Cuda::Usable { devices } => Err(Error::NoSuchDevice { index, devices: *devices }),
        Cuda::Unusable { reason } => Err(Error::CudaUnusable { reason: reason.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;

    #[test]
    fn a_cuda_device_that_is_not_there_is_an_error_and_auto_does_without() {
        let none = Cuda::Unusable { reason: "no driver".to_owned() };
        let two = Cuda::Usable { devices: 2 };
        assert_eq!(cuda_device(1, &two).unwrap(), Device::Cuda(1));
        let error = cuda_device(2, &two);
        assert!(matches!(error, Err(Error::NoSuchDevice { index: 2, devices: 2 })), "{error:?}");
        let error = cuda_device(0, &none);
        assert!(matches!(&error, Err(Error::CudaUnusable { reason }) if reason == "no driver"), "{error:?}");
        let expected = devices().get(1).copied().unwrap_or(Device::Cpu);
        assert_eq!(device(DeviceChoice::Auto).unwrap(), expected);
        assert_eq!(device(DeviceChoice::Cpu).unwrap(), Device::Cpu);
    }

    #[test]
    fn processes_of_a_host_take_its_gpus_in_turn_or_the_one_they_were_given() {
        for (visible, expected) in [("", [0, 1, 2]), ("0,1,2,3", [0, 1, 2]), ("GPU-8932f937", [0; 3]), ("3", [0; 3])] {
            assert_eq!([0, 1, 2].map(|rank| local_index(rank, visible)), expected, "{visible}");
        }
    }

    #[test]
    fn a_lack_of_memory_is_an_error_with_a_remedy_and_other_panics_go_on() {
        let large = || {
            let _ = Tensor::zeros([1 << 60], (Kind::Uint8, Device::Cpu));
            Ok(())
        };
        let error =
            catch_out_of_memory::<_, Error>("ask for less", large).expect_err("no machine has that").to_string();
        assert!(
            error.starts_with("out of memory: ") && error.contains("allocate") && error.ends_with("; ask for less"),
            "{error}"
        );
        assert!(!error.contains('\n') && error.len() < 300, "{error}");

        let cuda: &(dyn Any + Send) = &concat!(
            "called `Result::unwrap()` on an `Err` value: Torch(\"CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a ",
            "total capacity of 139.80 GiB of which 1.00 GiB is free. If reserved but unallocated memory is large try setting ",
            "PYTORCH_ALLOC_CONF. See documentation for Memory Management (https://pytorch.org/docs)\\nException raised from \")"
        )
        .to_owned();
        let message = out_of_memory(cuda).expect("it is one");
        assert!(message.starts_with("CUDA out of memory. Tried to allocate 20.00 GiB"), "{message}");
        assert!(message.ends_with("PYTORCH_ALLOC_CONF"), "{message}");

        let cpp: &(dyn Any + Send) =
            &"called `Result::unwrap()` on an `Err` value: Torch(\"std::bad_alloc\")".to_owned();
        assert_eq!(out_of_memory(cpp).as_deref(), Some("std::bad_alloc"));

        let other = catch_unwind(|| catch_out_of_memory::<(), Error>("-", || panic!("another reason")));
        assert_eq!(other.expect_err("it panics").downcast_ref::<&str>(), Some(&"another reason"));
    }

    #[test]
    fn the_loaded_libtorch_is_the_one_that_tch_binds() {
        assert_eq!(libtorch_version(), "2.11.0");
    }

    #[test]
    fn a_product_and_its_gradient_are_as_by_hand_on_every_device() {
        if let Cuda::Unusable { reason } = cuda() {
            grappa_skip::skip_part!("CUDA: {reason}");
        }
        for device in devices() {
            let matrix = |values: [f32; 4]| Tensor::from_slice(&values).view([2, 2]).to_device(device);
            let x = matrix([1.0, 2.0, 3.0, 4.0]);
            let weight = matrix([5.0, 6.0, 7.0, 8.0]).set_requires_grad(true);
            let product = x.matmul(&weight);
            let loss = (&product * matrix([1.0, 0.0, 2.0, 1.0])).sum(Kind::Float);
            loss.backward();
            let values = |tensor: &Tensor| Vec::<f32>::try_from(tensor.flatten(0, -1)).expect("floats");
            assert_eq!(values(&product), [19.0, 22.0, 43.0, 50.0], "{device:?}");
            assert_eq!(loss.double_value(&[]), 155.0, "{device:?}");
            // x transposed, times the factors of the loss.
            assert_eq!(values(&weight.grad()), [7.0, 3.0, 10.0, 4.0], "{device:?}");
        }
    }
    #[test]
    fn arrays_that_are_sent_together_arrive_apart() {
        if let Cuda::Unusable { reason } = cuda() {
            grappa_skip::skip_part!("CUDA: {reason}");
        }
        for device in devices() {
            let narrow = send_together::<i32>(&[&[1, -2, 3][..], &[]], device);
            let wide = send_together::<i64>(&[[1 << 40, -1, 7]], device);
            let sent: Vec<&Tensor> = narrow.iter().chain(&wide).collect();
            let kinds: Vec<Kind> = sent.iter().map(|tensor| tensor.kind()).collect();
            assert_eq!(kinds, [Kind::Int, Kind::Int, Kind::Int64]);
            assert!(sent.iter().all(|tensor| tensor.device() == device));
            let values = |at: usize| Vec::<f64>::try_from(sent[at].to_kind(Kind::Double)).unwrap();
            assert_eq!(values(0), [1.0, -2.0, 3.0]);
            assert!(values(1).is_empty());
            assert_eq!(values(2), [f64::from(2.0f32).powi(40), -1.0, 7.0]);
            let floats = send_together(&[[0.5f32], [7.0]], device);
            assert_eq!(floats.iter().map(|tensor| tensor.double_value(&[0])).collect::<Vec<_>>(), [0.5, 7.0]);
            assert!(send_together::<f32>(&[[]; 0], device).is_empty());
        }
    }
}
