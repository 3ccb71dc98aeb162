//! The library as it is found, or isn't.
#![allow(unsafe_code, reason = "a device that the fake made up")]

use std::error::Error;

use super::super::library::{Library, LoadError};
use super::super::{SigCaps, ffi};
use super::fake::{Fake, library};

#[test]
fn a_library_that_is_missing_is_named() {
    let error = Library::load_from("libmlx5-of-nobody.so.1").unwrap_err();
    assert!(
        matches!(&error, LoadError::Library { library, .. } if library == "libmlx5-of-nobody.so.1"),
        "{error}"
    );
    assert_eq!(error.to_string(), "cannot load libmlx5-of-nobody.so.1");
    let said = std::iter::successors(Some(&error as &dyn Error), |error| (*error).source()).last().unwrap();
    assert!(said.to_string().contains("No such file"), "{said}");
}

#[test]
fn a_function_that_is_missing_is_named() {
    let error = Library::load_from("libc.so.6").unwrap_err();
    assert!(matches!(error, LoadError::Function { function: "mlx5dv_open_device", .. }), "{error}");
    assert_eq!(error.to_string(), "libc.so.6 has no function mlx5dv_open_device");
}

/// It comes with the header that the layouts are compared with.
#[test]
fn the_library_that_is_installed_has_every_function() {
    let library = Library::load().expect("ibverbs-providers is installed");
    assert!(format!("{library:?}").contains("mkey_check"));
}

#[test]
fn capabilities_are_asked_of_the_device() {
    let (fake, _queue) = Fake::new(124);
    // SAFETY: what the fake takes for a device and a context is its own.
    let context = unsafe { library().open_device(fake.context().cast()) }.expect("an open device");
    // SAFETY: as above.
    let caps = || unsafe { library().sig_caps(context) }.expect("a device that answers");
    assert!(caps().has_t10dif());
    assert_eq!(caps().block_sizes().count(), 5);
    fake.device().caps = ffi::SigCaps::default();
    assert_eq!(caps(), SigCaps::default());
}
