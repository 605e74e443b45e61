//! Starting libtorch: which version it is, what it may use, and on which device to train.
//!
//! One build serves machines with and without a GPU: it is linked to libtorch's CPU half alone, and the CUDA half is
//! loaded at start if it, and all that it needs, is installed. That takes about a second where it succeeds and a
//! millisecond where it does not, so a program that was told `--device cpu` skips it.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::OnceLock,
    thread,
};

use grappa_run::config::DeviceChoice;
use tch::{Device, Tensor};

use crate::{Error, Result, shim};

/// Whether libtorch can use CUDA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cuda {
    /// It can, on so many devices (at least one).
    Usable {
        /// How many there are.
        devices: usize,
    },
    /// It can't.
    Unusable {
        /// Why, and what would help.
        reason: String,
    },
}

/// The version of libtorch in use, such as `2.11.0`.
pub fn libtorch_version() -> String {
    shim::libtorch_version().map(|part| part.to_string()).join(".")
}

/// How many threads libtorch computes one operation with. OMP_NUM_THREADS sets it.
pub fn threads() -> usize {
    usize::try_from(tch::get_num_threads()).unwrap_or(1)
}

/// Lets libtorch compute one operation with so many threads.
///
/// # Panics
/// If there are none.
pub fn set_threads(threads: usize) {
    assert!(threads > 0, "no threads");
    tch::set_num_threads(i32::try_from(threads).unwrap_or(i32::MAX));
}

/// Lets the process keep memory that it frees, for its next use of it. Each training step allocates and frees the same tens
/// of megabytes; handed back to the operating system in between, they cost a tenth of the step in page faults. Call it once,
/// before training; a process that is about to do something else has no use for it.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    shim::keep_freed_memory();
}

/// Has libtorch's threads sleep soon when they have nothing to do, for the good of those that sample and read beside them.
///
/// OpenMP's threads spin for some milliseconds before they sleep. GCC's library spins a three-hundredth of that when it manages
/// more threads than there are processors, as it should here, where it does not know of the others; so it is given some more to
/// manage, which never have work. Out of core on two cores, that makes an epoch a tenth shorter. Where another library computes
/// for libtorch, or OMP_WAIT_POLICY or GOMP_SPINCOUNT is set, it changes nothing.
pub fn rest_when_idle() {
    let idle = || {
        shim::on_each_thread(&|| ());
        // The threads belong to the one that they were made for.
        loop {
            thread::park();
        }
    };
    // Without it, they spin.
    let _ = thread::Builder::new().name("idle".to_owned()).spawn(idle);
}

/// Whether CUDA can be used. The first call loads libtorch's CUDA half and must come before anything else that could ask
/// libtorch for it.
pub fn cuda() -> &'static Cuda {
    static CUDA: OnceLock<Cuda> = OnceLock::new();
    CUDA.get_or_init(|| match shim::load_cuda() {
        Err(reason) => Cuda::Unusable {
            reason: format!("{reason} (`cargo xtask setup --cuda` installs what libtorch needs for it)"),
        },
        Ok(()) => match usize::try_from(tch::Cuda::device_count()) {
            Ok(devices @ 1..) => Cuda::Usable { devices },
            _ => Cuda::Unusable {
                reason: "libtorch found no CUDA device (`nvidia-smi` shows whether the driver does)".to_owned(),
            },
        },
    })
}

/// Runs `work`, in which libtorch may find no memory, on the device or here: it panics then, and this makes an error of that,
/// with a `remedy`. (Who prints panics may leave [those](is_out_of_memory) out.)
///
/// # Errors
/// What `work` returns, and [`Error::OutOfMemory`].
///
/// # Panics
/// If `work` does, for another reason.
pub fn catch_out_of_memory<T>(remedy: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    // What the work had borrowed is not used any more: the error ends what it was for.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(panic) => match out_of_memory(&*panic) {
            Some(what) => Err(Error::OutOfMemory { what, remedy }),
            None => resume_unwind(panic),
        },
    }
}

/// Whether a panic is libtorch's for want of memory.
pub fn is_out_of_memory(payload: &(dyn Any + Send)) -> bool {
    out_of_memory(payload).is_some()
}

/// What libtorch said of the memory that it lacks.
fn out_of_memory(payload: &(dyn Any + Send)) -> Option<String> {
    let text = payload.downcast_ref::<String>()?;
    // Of c10's allocators, for CUDA and for the processor.
    let patterns = ["CUDA out of memory", "can't allocate memory", "not enough memory"];
    let start = patterns.iter().filter_map(|pattern| text.find(pattern)).min()?;
    // The message is quoted, and a trace of C++ follows.
    let end = text[start..].find("\\n").map_or(text.len(), |length| start + length);
    let sentences = &text[start..end];
    // CUDA's goes on with advice on environment variables.
    let end = sentences.find(" See documentation").unwrap_or(sentences.len());
    Some(sentences[..end].trim_end_matches(['"', ')', '.']).to_owned())
}

/// Copies a tensor of the processor's to a device. For another device, the copy is from pinned memory and nobody waits for it.
pub(crate) fn send(tensor: Tensor, device: Device) -> Tensor {
    match device {
        Device::Cpu => tensor,
        _ => tensor.pin_memory(device).to_device_(device, tensor.kind(), true, false),
    }
}

/// All devices that can be used, the processor first.
pub fn devices() -> Vec<Device> {
    let cuda_devices = match cuda() {
        Cuda::Usable { devices } => *devices,
        Cuda::Unusable { .. } => 0,
    };
    let mut devices = vec![Device::Cpu];
    devices.extend((0..cuda_devices).map(Device::Cuda));
    devices
}

/// The device to train on. Asked for the processor, it does not load CUDA.
///
/// # Errors
/// If a CUDA device was asked for and is not there.
pub fn device(choice: DeviceChoice) -> Result<Device> {
    match choice {
        DeviceChoice::Cpu => Ok(Device::Cpu),
        DeviceChoice::Auto => Ok(cuda_device(0, cuda()).unwrap_or(Device::Cpu)),
        DeviceChoice::Cuda(index) => cuda_device(index, cuda()),
    }
}

fn cuda_device(index: usize, cuda: &Cuda) -> Result<Device> {
    match cuda {
        Cuda::Usable { devices } if index < *devices => Ok(Device::Cuda(index)),
        Cuda::Usable { devices } => Err(Error::NoSuchDevice {
            index,
            devices: *devices,
        }),
        Cuda::Unusable { reason } => Err(Error::CudaUnusable { reason: reason.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;

    #[test]
    fn a_cuda_device_that_is_not_there_is_an_error_and_auto_does_without() {
        let none = Cuda::Unusable {
            reason: "no driver".to_owned(),
        };
        let two = Cuda::Usable { devices: 2 };
        assert_eq!(cuda_device(1, &two).unwrap(), Device::Cuda(1));
        let error = cuda_device(2, &two);
        assert!(
            matches!(error, Err(Error::NoSuchDevice { index: 2, devices: 2 })),
            "{error:?}"
        );
        let error = cuda_device(0, &none);
        assert!(
            matches!(&error, Err(Error::CudaUnusable { reason }) if reason == "no driver"),
            "{error:?}"
        );
        let expected = devices().get(1).copied().unwrap_or(Device::Cpu);
        assert_eq!(device(DeviceChoice::Auto).unwrap(), expected);
        assert_eq!(device(DeviceChoice::Cpu).unwrap(), Device::Cpu);
    }

    #[test]
    fn a_lack_of_memory_is_an_error_with_a_remedy_and_other_panics_go_on() {
        let large = || {
            let _ = Tensor::zeros([1 << 60], (Kind::Uint8, Device::Cpu));
            Ok(())
        };
        let error = catch_out_of_memory("ask for less", large)
            .expect_err("no machine has that")
            .to_string();
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
        let what = out_of_memory(cuda).expect("it is one");
        assert!(
            what.starts_with("CUDA out of memory. Tried to allocate 20.00 GiB"),
            "{what}"
        );
        assert!(what.ends_with("PYTORCH_ALLOC_CONF"), "{what}");

        let other = catch_unwind(|| catch_out_of_memory::<()>("-", || panic!("another reason")));
        assert_eq!(
            other.expect_err("it panics").downcast_ref::<&str>(),
            Some(&"another reason")
        );
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
}
