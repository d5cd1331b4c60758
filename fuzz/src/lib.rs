//! What the fuzz targets share: how inputs are read, and a device process without its process.

pub mod device;
pub mod input;
