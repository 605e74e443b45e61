// PyTorch's ProcessGroupGloo.hpp includes this header, and the wheel of PyTorch has no headers of gloo. Nothing of it is used.
#pragma once
