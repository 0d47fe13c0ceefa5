"""Stand-in for sglang-kernel: every kernel can be imported and refuses to run."""


def __getattr__(name):
    def kernel(*args, **kwargs):
        raise NotImplementedError(f"sgl_kernel.{name} has no CPU stand-in")

    kernel.__name__ = name
    return kernel
