//! Loads models in-process and answers requests: the only part of the program that touches a device.

pub mod hub;
