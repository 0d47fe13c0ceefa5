"""Models that SGLang loads instead of its own (SGLANG_EXTERNAL_MODEL_PACKAGE)."""
