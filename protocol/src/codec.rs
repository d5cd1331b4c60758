//! The stream codec.
