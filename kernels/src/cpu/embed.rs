//! Table look-up.

use super::Cpu;
use crate::matrix::Matrix;
use crate::threads::Parts;

pub(crate) fn embedding(cpu: &Cpu, out: &mut [f32], table: &Matrix, tokens: &[u32]) {
    let width = table.columns();
    let out = Parts::new(out);
    cpu.run_rows(tokens.len(), width, |rows| {
        for row in rows {
            // SAFETY: each row is one task's.
            let out = unsafe { out.take(row * width..(row + 1) * width) };
            table.read_row(tokens[row] as usize, out);
        }
    });
}
