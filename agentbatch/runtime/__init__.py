"""The live batch: admission, environment slots, labelled clients, events."""
