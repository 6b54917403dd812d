//! Tile registers (Intel AMX): 8-bit products of whole blocks, eight times the rate of vector instructions.
//!
//! Products are exact integers, so results equal those of every other instruction set bit for bit. Written as inline
//! assembly because the compiler's own functions for AMX are not stable.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::marker::PhantomData;
use std::sync::OnceLock;

/// Rows of activations in one product.
pub(super) const TILE_PANEL_ROWS: usize = 8;

/// Whether the processor has tile registers with 8-bit products and the system lets this process use them.
pub(crate) fn are_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| processor_has_tiles() && request_permission())
}

fn processor_has_tiles() -> bool {
    const AMX_TILE: u32 = 1 << 24;
    const AMX_INT8: u32 = 1 << 25;
    let highest_leaf = __cpuid_count(0, 0).eax;
    highest_leaf >= 7 && __cpuid_count(7, 0).edx & (AMX_TILE | AMX_INT8) == AMX_TILE | AMX_INT8
}

/// The system saves tile registers only for processes that ask (Linux, "Using XSTATE features in user space
/// applications").
#[cfg(target_os = "linux")]
fn request_permission() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
    const TILE_DATA: i64 = 18;
    let mut result = ARCH_PRCTL;
    // SAFETY: a system call that takes two numbers and touches no memory of ours; the kernel clobbers rcx and r11.
    unsafe {
        asm!("syscall", inout("rax") result, in("rdi") ARCH_REQ_XCOMP_PERM, in("rsi") TILE_DATA,
            out("rcx") _, out("r11") _, options(nostack));
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn request_permission() -> bool {
    false
}

/// The shapes of the tile registers, as `ldtilecfg` reads them.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_a_row: [u16; 16],
    rows: [u8; 16],
}

/// The integers of one product, `[weights][row][lane]`.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Sums(pub(super) [[[i32; 16]; TILE_PANEL_ROWS]; 2]);

/// This thread's tile registers, configured; released when dropped.
pub(super) struct Tiles {
    /// Registers belong to a thread.
    not_send: PhantomData<*const ()>,
}

impl Tiles {
    /// Configures for products over `depth` columns, a multiple of 4 up to 32.
    ///
    /// # Safety
    /// [`are_available`] is true, and no other `Tiles` lives on this thread.
    pub(super) unsafe fn configure(depth: usize) -> Self {
        let (rows, quads) = (TILE_PANEL_ROWS as u8, (depth / 4) as u8);
        let mut configuration =
            Configuration { palette: 1, start_row: 0, reserved: [0; 14], bytes_a_row: [0; 16], rows: [0; 16] };
        // Sums in 0 and 1, activations in 2, weights in 3 and 4.
        configuration.bytes_a_row[..5].copy_from_slice(&[64, 64, depth as u16, 64, 64]);
        configuration.rows[..5].copy_from_slice(&[rows, rows, rows, quads, quads]);
        // SAFETY: the instruction exists (the caller's promise) and reads 64 bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &configuration, options(nostack, readonly)) };
        Self { not_send: PhantomData }
    }

    /// `sums[t][row][lane] = Σ_j activations[row][j] · weights[t][j / 4][lane][j mod 4]` for both `t`.
    ///
    /// `activations` points at 8 rows 32 bytes apart; each `weights` at `depth / 4` rows of 64 bytes.
    ///
    /// # Safety
    /// The pointers are valid for the extents above.
    #[inline(always)]
    pub(super) unsafe fn multiply(&self, sums: &mut Sums, activations: *const i8, weights: [*const u8; 2]) {
        // SAFETY: configured by construction; reads as the caller promises, writes both arrays of 8 rows of 64 bytes.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tileloadd tmm2, [{activations} + {narrow}]",
                "tileloadd tmm3, [{first} + {wide}]",
                "tileloadd tmm4, [{second} + {wide}]",
                "tdpbsud tmm0, tmm2, tmm3",
                "tdpbsud tmm1, tmm2, tmm4",
                "tilestored [{sums} + {wide}], tmm0",
                "tilestored [{sums} + {wide} + 512], tmm1",
                activations = in(reg) activations,
                first = in(reg) weights[0],
                second = in(reg) weights[1],
                sums = in(reg) sums,
                narrow = in(reg) 32usize,
                wide = in(reg) 64usize,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, out("tmm4") _,
                options(nostack),
            );
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: configured by construction; gives the registers back to their initial state.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}
