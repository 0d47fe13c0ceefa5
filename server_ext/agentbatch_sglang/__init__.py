"""The part of agentbatch that lives beside SGLang; no plugin ships yet (CHANGELOG)."""
