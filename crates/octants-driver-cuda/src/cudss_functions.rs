//! The functions of cuDSS 1, by their exported names.

use std::ffi::{c_int, c_void};

use octants_driver_gpu::own_functions;
use octants_driver_gpu::symbols::RawStream;

/// The library's state for a device.
pub type Handle = *mut c_void;
/// How a system is solved.
pub type Settings = *mut c_void;
/// What is known of a system: its order and factors.
pub type Data = *mut c_void;
/// A matrix or a vector.
pub type Matrix = *mut c_void;

own_functions! {
    /// cuDSS's functions.
    Functions {
        /// Its version.
        property = "cudssGetProperty"(c_int, *mut c_int);
        /// The state for the thread's device.
        create = "cudssCreate"(*mut Handle);
        /// Gives it back.
        destroy = "cudssDestroy"(Handle);
        /// Where work is queued from now on.
        set_stream = "cudssSetStream"(Handle, RawStream);
        /// The usual settings.
        create_settings = "cudssConfigCreate"(*mut Settings);
        /// Gives them back.
        destroy_settings = "cudssConfigDestroy"(Settings);
        /// Room for what becomes known of a system.
        create_data = "cudssDataCreate"(Handle, *mut Data);
        /// Gives it back.
        destroy_data = "cudssDataDestroy"(Handle, Data);
        /// Tells something of a system, once its work is done.
        get = "cudssDataGet"(Handle, Data, c_int, *mut c_void, usize, *mut usize);
        /// Tells of a matrix by rows.
        create_rows = "cudssMatrixCreateCsr"(
            *mut Matrix, i64, i64, i64, *const c_void, *const c_void, *const c_void, *const c_void,
            c_int, c_int, c_int, c_int, c_int, c_int);
        /// Tells of a vector, as a matrix of one column.
        create_dense = "cudssMatrixCreateDn"(*mut Matrix, i64, i64, i64, *const c_void, c_int, c_int);
        /// Gives a matrix other values.
        set_values = "cudssMatrixSetValues"(Matrix, *const c_void);
        /// Lets go of a matrix.
        destroy_matrix = "cudssMatrixDestroy"(Matrix);
        /// Does a step of the work.
        execute = "cudssExecute"(Handle, c_int, Settings, Data, Matrix, Matrix, Matrix);
    }
}
