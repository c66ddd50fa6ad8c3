// one_call.rs - y = softmax(x) of four rows from Rust, by declarations of one's own; bindgen makes all of them from the headers.
use std::ffi::{c_char, c_int, c_void, CStr};
use std::mem::size_of_val;
use std::ptr::{null, null_mut};

/// ckl_softmax_desc: 0 is the default of every field, as everywhere.
#[repr(C)]
#[derive(Default)]
struct SoftmaxDesc {
    direction: c_int,
    dtype: c_int,
    outer: i64,
    n: i64,
    inner: i64,
    ldx: i64,
    ldy: i64,
    log: bool,
    scale: f32,
    mask: c_int,
    mask_rows: i64,
    mask_repeat: i64,
}

#[repr(C)]
struct SoftmaxArgs {
    x: *const c_void,
    mask: *const c_void,
    y: *mut c_void,
    dy: *const c_void,
    dx: *mut c_void,
    workspace: *mut c_void,
}

#[link(name = "cutekernellib")]
extern "C" {
    fn ckl_device_open(id: *const c_char, device: *mut *mut c_void) -> c_int;
    fn ckl_device_close(device: *mut c_void);
    fn ckl_malloc(device: *mut c_void, bytes: usize, memory: *mut *mut c_void) -> c_int;
    fn ckl_free(device: *mut c_void, memory: *mut c_void);
    fn ckl_copy_in(device: *mut c_void, to: *mut c_void, from: *const c_void, bytes: usize, stream: *mut c_void) -> c_int;
    fn ckl_copy_out(device: *mut c_void, to: *mut c_void, from: *const c_void, bytes: usize, stream: *mut c_void) -> c_int;
    fn ckl_softmax(device: *mut c_void, desc: *const SoftmaxDesc, args: *const SoftmaxArgs, stream: *mut c_void) -> c_int;
    fn ckl_error() -> *const c_char;
}

const F32: c_int = 2; // CKL_F32

fn check(status: c_int) -> Result<(), String> {
    match status {
        0 => Ok(()),
        _ => Err(unsafe { CStr::from_ptr(ckl_error()) }.to_string_lossy().into_owned()),
    }
}

fn softmax(device: *mut c_void, rows: usize, cols: usize, x: &[f32]) -> Result<Vec<f32>, String> {
    let (mut memory, bytes, mut y) = (null_mut(), size_of_val(x), vec![0.0; x.len()]);
    let desc = SoftmaxDesc { dtype: F32, outer: rows as i64, n: cols as i64, ..Default::default() };
    unsafe {
        check(ckl_malloc(device, bytes, &mut memory))?;
        let args = SoftmaxArgs { x: memory, mask: null(), y: memory, dy: null(), dx: null_mut(), workspace: null_mut() };
        let done = check(ckl_copy_in(device, memory, x.as_ptr().cast(), bytes, null_mut()))
            .and_then(|()| check(ckl_softmax(device, &desc, &args, null_mut())))
            .and_then(|()| check(ckl_copy_out(device, y.as_mut_ptr().cast(), memory, bytes, null_mut()))); // waits for the kernel
        ckl_free(device, memory);
        done.map(|()| y)
    }
}

fn main() -> Result<(), String> {
    let (rows, cols, mut device) = (4, 1000, null_mut());
    let x: Vec<f32> = (0..rows * cols).map(|i| (i % 7) as f32).collect();
    check(unsafe { ckl_device_open(null(), &mut device) })?;
    let y = softmax(device, rows, cols, &x);
    let wrong = softmax(device, rows, cols, &x[..0]).err(); // no memory for what the problem has
    unsafe { ckl_device_close(device) };
    let sum: f32 = y?[..cols].iter().sum();
    println!("the first row sums to {sum:.6}; a mistake: {}", wrong.unwrap_or_default());
    if (sum - 1.0).abs() < 1e-5 { Ok(()) } else { Err("that is not 1".into()) }
}
