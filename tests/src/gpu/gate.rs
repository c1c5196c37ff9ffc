//! A stream that waits for the test.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use cudarc::driver::CudaStream;
use cudarc::driver::result::stream::launch_host_function;

/// Holds a stream back until it is opened.
pub struct Gate(&'static (Mutex<bool>, Condvar));

impl Gate {
    /// Everything that the stream gets from here on has to wait.
    pub fn close(stream: &CudaStream) -> Self {
        let gate: &'static _ = Box::leak(Box::new((Mutex::new(false), Condvar::new())));
        let argument = ptr::from_ref(gate).cast_mut().cast();
        // SAFETY: the stream is alive, and the gate is never freed.
        let launched = unsafe { launch_host_function(stream.cu_stream(), wait_at_gate, argument) };
        launched.expect("the stream takes a host function");
        Self(gate)
    }

    /// Lets the stream run.
    pub fn open(self) {
        *self.0.0.lock().expect("nobody panics with it") = true;
        self.0.1.notify_all();
    }
}

/// Runs in a thread of the driver's. Gives up after a while, so that a call that waits
/// fails its test instead of hanging.
unsafe extern "C" fn wait_at_gate(gate: *mut c_void) {
    // SAFETY: `Gate::close` passes a gate that lives forever.
    let (opened, changed) = unsafe { &*gate.cast::<(Mutex<bool>, Condvar)>() };
    if let Ok(opened) = opened.lock() {
        let patience = Duration::from_secs(10);
        drop(changed.wait_timeout_while(opened, patience, |opened| !*opened));
    }
}
