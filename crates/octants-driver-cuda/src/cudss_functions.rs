//! The functions of cuDSS 1, by their exported names.

use std::ffi::{c_int, c_void};

use octants_driver_gpu::own_functions;
use octants_driver_gpu::symbols::RawStream;

/// The library's state for a device.
pub type Handle = *mut c_void;
/// The configuration of a solve.
pub type Settings = *mut c_void;
/// The data of a system: its ordering and factors.
pub type Data = *mut c_void;
/// A matrix or a vector.
pub type Matrix = *mut c_void;

own_functions! {
    /// cuDSS's functions.
    Functions {
        /// Its version.
        property = "cudssGetProperty"(c_int, *mut c_int);
        /// Creates the state for the thread's device.
        create = "cudssCreate"(*mut Handle);
        /// Gives it back.
        destroy = "cudssDestroy"(Handle);
        /// Sets the stream.
        set_stream = "cudssSetStream"(Handle, RawStream);
        /// Creates the default configuration.
        create_settings = "cudssConfigCreate"(*mut Settings);
        /// Gives them back.
        destroy_settings = "cudssConfigDestroy"(Settings);
        /// Creates the data of a system.
        create_data = "cudssDataCreate"(Handle, *mut Data);
        /// Gives it back.
        destroy_data = "cudssDataDestroy"(Handle, Data);
        /// Reads a property of a system, once its work is done.
        get = "cudssDataGet"(Handle, Data, c_int, *mut c_void, usize, *mut usize);
        /// Creates a CSR matrix.
        create_rows = "cudssMatrixCreateCsr"(
            *mut Matrix, i64, i64, i64, *const c_void, *const c_void, *const c_void, *const c_void,
            c_int, c_int, c_int, c_int, c_int, c_int);
        /// Creates a vector, as a matrix of one column.
        create_dense = "cudssMatrixCreateDn"(*mut Matrix, i64, i64, i64, *const c_void, c_int, c_int);
        /// Sets a matrix's values.
        set_values = "cudssMatrixSetValues"(Matrix, *const c_void);
        /// Destroys a matrix.
        destroy_matrix = "cudssMatrixDestroy"(Matrix);
        /// Executes a phase.
        execute = "cudssExecute"(Handle, c_int, Settings, Data, Matrix, Matrix, Matrix);
    }
}
