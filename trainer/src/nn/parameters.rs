//! Parameters: their initial values, their names, and all of them as one vector.
//!
//! The values of all parameters are in one tensor, and their gradients in another, in the order in which the model made them. So an
//! optimizer is a few operators, and partitions exchange a single tensor without copying it.
//!
//! Initial values are a function of the seed and the order of the parameters. They do not depend on libtorch's generator or on the
//! device.

use grappa_formats::random::SplitMix64;
use grappa_kernels::update;
use tch::{Device, Kind, Tensor, no_grad};

use crate::shim;

/// All parameters and buffers of a model. A buffer is state that is not trained: running means of batch norms.
#[derive(Debug)]
pub struct Parameters {
    named: Vec<(String, Tensor)>,
    buffers: Vec<(String, Tensor)>,
    values: Tensor,
    gradient: Tensor,
    /// The gradient, then [`Parameters::ROOM`] more values.
    with_room: Tensor,
}

impl Parameters {
    /// Values behind the gradient, in the same memory, for what is exchanged with it.
    pub const ROOM: usize = 4;

    /// Names and parameters, in the order of the flat vectors.
    pub fn named(&self) -> &[(String, Tensor)] {
        &self.named
    }

    /// Names and buffers.
    pub fn buffers(&self) -> &[(String, Tensor)] {
        &self.buffers
    }

    /// Number of values of all parameters.
    pub fn count(&self) -> usize {
        self.values.numel()
    }

    /// The values of all parameters, f32 of `[count]`. It shares the memory of the parameters.
    pub fn flat_values(&self) -> Tensor {
        self.values.shallow_clone()
    }

    /// The gradients of all parameters, f32 of `[count]`. It shares the memory to which backward passes add.
    pub fn flat_gradient(&self) -> Tensor {
        self.gradient.shallow_clone()
    }

    /// The gradients of all parameters and the [`Parameters::ROOM`] behind them, f32 of `[count + ROOM]`. It shares their memory.
    pub fn flat_gradient_with_room(&self) -> Tensor {
        self.with_room.shallow_clone()
    }

    /// Multiplies the gradients by a factor.
    pub fn scale_gradient(&self, factor: f64) {
        let mut gradient = self.flat_gradient();
        match gradient.device() {
            Device::Cpu => update::scale(shim::values_mut(&mut gradient), factor as f32),
            _ => gradient *= factor,
        }
    }

    /// Scales the gradients down to this norm, if they exceed it.
    pub fn clip_gradient(&self, norm_max: f64) {
        let mut gradient = self.flat_gradient();
        let norm = gradient.norm();
        match gradient.device() {
            Device::Cpu => {
                let norm = norm.double_value(&[]);
                if norm > norm_max {
                    self.scale_gradient(norm_max / norm);
                }
            }
            // The processor need not wait for the norm.
            _ => gradient *= (norm.reciprocal() * norm_max).clamp_max(1.0),
        }
    }

    /// Sets the gradients to zero.
    pub fn zero_gradient(&self) {
        let mut gradient = self.flat_gradient();
        match gradient.device() {
            Device::Cpu => update::clear(shim::values_mut(&mut gradient)),
            _ => _ = gradient.zero_(),
        }
    }
}

/// Makes the parameters of a model, one after the other.
#[derive(Debug)]
pub(crate) struct Builder {
    device: Device,
    random: SplitMix64,
    prefix: String,
    named: Vec<(String, Tensor)>,
    buffers: Vec<(String, Tensor)>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Start {
    /// Uniform between minus and plus the bound.
    Uniform(f64),
    /// A constant.
    Constant(f32),
}

impl Start {
    /// PyTorch's bound for weights and biases of a linear layer.
    pub(crate) fn linear(inputs: i64) -> Self {
        Self::Uniform((inputs as f64).sqrt().recip())
    }

    /// Glorot's bound (Glorot, Bengio: "Understanding the difficulty of training deep feedforward neural networks", 2010),
    /// times `gain`, for the last two sizes of a tensor.
    pub(crate) fn glorot(rows: i64, columns: i64, gain: f64) -> Self {
        Self::Uniform(gain * (6.0 / (rows + columns) as f64).sqrt())
    }
}

impl Builder {
    pub(crate) fn new(seed: u64, device: Device) -> Self {
        Self { device, random: SplitMix64::new(seed), prefix: String::new(), named: Vec::new(), buffers: Vec::new() }
    }

    /// Calls `make` with `name` and a dot as prefix of all names.
    pub(crate) fn scope<T>(&mut self, name: &str, make: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.prefix.len();
        self.prefix.push_str(name);
        self.prefix.push('.');
        let made = make(self);
        self.prefix.truncate(length);
        made
    }

    pub(crate) fn parameter(&mut self, name: &str, shape: &[i64], start: Start) -> Tensor {
        let tensor = self.tensor(shape, start).set_requires_grad(true);
        self.named.push((format!("{}{name}", self.prefix), tensor.shallow_clone()));
        tensor
    }

    pub(crate) fn buffer(&mut self, name: &str, shape: &[i64], value: f32) -> Tensor {
        let tensor = self.tensor(shape, Start::Constant(value));
        self.buffers.push((format!("{}{name}", self.prefix), tensor.shallow_clone()));
        tensor
    }

    fn tensor(&mut self, shape: &[i64], start: Start) -> Tensor {
        let count = shape.iter().product::<i64>() as usize;
        let values: Vec<f32> = match start {
            Start::Constant(value) => vec![value; count],
            Start::Uniform(bound) => {
                // In [0, 1), of 53 random bits.
                let uniforms = (0..count).map(|_| (self.random.draw() >> 11) as f64 / (1u64 << 53) as f64);
                uniforms.map(|uniform| (bound * (2.0 * uniform - 1.0)) as f32).collect()
            }
        };
        Tensor::from_slice(&values).view(shape).to_device(self.device)
    }

    /// Moves the values of all parameters into one tensor.
    pub(crate) fn finish(self) -> Parameters {
        no_grad(|| {
            let flat: Vec<Tensor> = self.named.iter().map(|(_, tensor)| tensor.detach().view([-1])).collect();
            let values = Tensor::cat(&flat, 0);
            let count = values.numel() as i64;
            let with_room = Tensor::zeros([count + Parameters::ROOM as i64], (Kind::Float, self.device));
            let gradient = with_room.narrow(0, 0, count);
            let mut start = 0;
            for (_, tensor) in &self.named {
                let count = tensor.numel() as i64;
                let [values, gradient] =
                    [&values, &gradient].map(|all| all.narrow(0, start, count).view(&*tensor.size()));
                // This changes all handles of the parameter.
                tensor.shallow_clone().set_data(&values);
                shim::set_gradient(tensor, &gradient);
                start += count;
            }
            Parameters { named: self.named, buffers: self.buffers, values, gradient, with_room }
        })
    }
}
