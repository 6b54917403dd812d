//! Tables as Parquet: typed columns, undefined values as nulls, zstd.

use std::sync::Arc;

use anyhow::Context as _;
use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use super::table::{Cell, Column, Kind, Table};

/// The bytes of a Parquet file with one row group.
///
/// # Errors
/// When the library refuses a column; that is our bug.
pub fn render(table: &Table) -> anyhow::Result<Vec<u8>> {
    let fields = table.columns.iter().map(|column| field(column).map(Arc::new)).collect::<anyhow::Result<Vec<_>>>()?;
    let schema = Type::group_type_builder("table").with_fields(fields).build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(Default::default()))
        .set_created_by(concat!("lifelong ", env!("CARGO_PKG_VERSION")).to_string())
        .build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (index, column) in table.columns.iter().enumerate() {
        let cells = table.rows.iter().map(|row| &row[index]);
        write_column(&mut group, column.kind, cells).with_context(|| format!("column {}", column.name))?;
    }
    group.close()?;
    Ok(writer.into_inner()?)
}

fn field(column: &Column) -> anyhow::Result<Type> {
    let (physical, converted) = match column.kind {
        Kind::Text => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
        Kind::Whole => (Physical::INT64, ConvertedType::NONE),
        Kind::Real => (Physical::DOUBLE, ConvertedType::NONE),
        Kind::Flag => (Physical::BOOLEAN, ConvertedType::NONE),
    };
    Ok(Type::primitive_type_builder(&column.name, physical)
        .with_converted_type(converted)
        .with_repetition(Repetition::OPTIONAL)
        .build()?)
}

fn write_column<'a>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    kind: Kind,
    cells: impl Iterator<Item = &'a Cell>,
) -> anyhow::Result<()> {
    match kind {
        Kind::Text => write_values::<ByteArrayType>(group, cells, |cell| match cell {
            Cell::Text(text) => Some(ByteArray::from(text.as_str())),
            _ => None,
        }),
        Kind::Whole => write_values::<Int64Type>(group, cells, |cell| match cell {
            Cell::Whole(value) => Some(*value),
            _ => None,
        }),
        Kind::Real => write_values::<DoubleType>(group, cells, |cell| match cell {
            Cell::Real(value) => Some(*value),
            _ => None,
        }),
        Kind::Flag => write_values::<BoolType>(group, cells, |cell| match cell {
            Cell::Flag(value) => Some(*value),
            _ => None,
        }),
    }
}

/// The values that are there, and for every row whether it has one.
fn write_values<'a, T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    cells: impl Iterator<Item = &'a Cell>,
    value: impl Fn(&Cell) -> Option<T::T>,
) -> anyhow::Result<()> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for cell in cells {
        let value = value(cell);
        levels.push(i16::from(value.is_some()));
        values.extend(value);
    }
    let mut column = group.next_column()?.context("the schema has as many columns as the table")?;
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    column.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;

    #[test]
    fn every_type_and_its_absence_read_back() {
        let columns = [("text", Kind::Text), ("whole", Kind::Whole), ("real", Kind::Real), ("flag", Kind::Flag)];
        let columns = columns.map(|(name, kind)| Column::new(name, kind, "")).to_vec();
        let mut table = Table::new("t", "", columns);
        table.push(vec![Cell::text("å\n"), Cell::Whole(-3), Cell::Real(0.1), Cell::Flag(true)]);
        table.push(vec![Cell::Empty, Cell::Empty, Cell::Empty, Cell::Empty]);
        let bytes = render(&table).unwrap();
        assert_eq!(bytes, render(&table).unwrap());
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].get_string(0).unwrap(), "å\n");
        assert_eq!((rows[0].get_long(1).unwrap(), rows[0].get_double(2).unwrap()), (-3, 0.1));
        assert!(rows[0].get_bool(3).unwrap());
        assert!(rows[1].get_long(1).is_err());
    }
}
