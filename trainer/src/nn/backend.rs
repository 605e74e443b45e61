//! The choice between our kernels and libtorch's operators.

use grappa_kernels::Instructions;
use tch::{Device, Kind, Tensor};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// Our kernels if there are any for the device and type, else libtorch's operators.
    Fastest,
    /// The same, with these instructions only.
    #[cfg(test)]
    With(Instructions),
    /// Libtorch's operators.
    #[cfg(test)]
    Operators,
}

impl Backend {
    pub(crate) fn has_kernels_for(self, tensor: &Tensor) -> bool {
        let wants_kernels = match self {
            Self::Fastest => true,
            #[cfg(test)]
            Self::With(_) => true,
            #[cfg(test)]
            Self::Operators => false,
        };
        wants_kernels && tensor.device() == Device::Cpu && matches!(tensor.kind(), Kind::Float | Kind::BFloat16)
    }

    pub(crate) fn instructions(self) -> Instructions {
        match self {
            #[cfg(test)]
            Self::With(instructions) => instructions,
            _ => Instructions::best(),
        }
    }
}
