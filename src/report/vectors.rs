//! Embedding vectors as Parquet: a text column and a list column of 32-bit floats, as pandas and polars read it.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, FloatType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::store::write_atomic;

/// Writes one row a text: `text` and `embedding`.
///
/// # Errors
/// Names the file that could not be written.
pub fn write_vectors(path: &Path, texts: &[String], vectors: &[Vec<f32>]) -> anyhow::Result<()> {
    let bytes = render(texts, vectors).context("vectors as Parquet")?;
    Ok(write_atomic(path, &bytes)?)
}

fn render(texts: &[String], vectors: &[Vec<f32>]) -> anyhow::Result<Vec<u8>> {
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(Default::default())).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema()?), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;

    let mut column = group.next_column()?.context("the text column")?;
    let values: Vec<ByteArray> = texts.iter().map(|text| ByteArray::from(text.as_str())).collect();
    column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
    column.close()?;

    // A vector is never empty: every element is present (definition 1); repetition 0 starts a row.
    let values: Vec<f32> = vectors.iter().flatten().copied().collect();
    let definition = vec![1i16; values.len()];
    let repetition: Vec<i16> =
        vectors.iter().flat_map(|vector| (0..vector.len()).map(|index| i16::from(index > 0))).collect();
    let mut column = group.next_column()?.context("the embedding column")?;
    column.typed::<FloatType>().write_batch(&values, Some(&definition), Some(&repetition))?;
    column.close()?;

    group.close()?;
    Ok(writer.into_inner()?)
}

fn schema() -> anyhow::Result<Type> {
    let text = Type::primitive_type_builder("text", Physical::BYTE_ARRAY)
        .with_converted_type(ConvertedType::UTF8)
        .with_repetition(Repetition::REQUIRED)
        .build()?;
    let element =
        Type::primitive_type_builder("element", Physical::FLOAT).with_repetition(Repetition::REQUIRED).build()?;
    let list = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![Arc::new(element)])
        .build()?;
    let embedding = Type::group_type_builder("embedding")
        .with_logical_type(Some(LogicalType::List))
        .with_repetition(Repetition::REQUIRED)
        .with_fields(vec![Arc::new(list)])
        .build()?;
    Ok(Type::group_type_builder("vectors").with_fields(vec![Arc::new(text), Arc::new(embedding)]).build()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::Field;

    #[test]
    fn rows_read_back_in_order() {
        let texts = ["one".to_string(), "zwei ☂".to_string()];
        let vectors = [vec![0.25f32, -1.0, 3.5], vec![1.0, 2.0, 4.0]];
        let bytes = render(&texts, &vectors).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(file.path()).unwrap()).unwrap();
        for (index, row) in reader.get_row_iter(None).unwrap().enumerate() {
            let columns: Vec<Field> = row.unwrap().into_columns().into_iter().map(|(_, field)| field).collect();
            assert_eq!(columns[0], Field::Str(texts[index].clone()));
            let Field::ListInternal(list) = &columns[1] else { panic!("{:?}", columns[1]) };
            let found: Vec<Field> = list.elements().to_vec();
            assert_eq!(found, vectors[index].iter().map(|value| Field::Float(*value)).collect::<Vec<_>>());
        }
        assert_eq!(reader.metadata().file_metadata().num_rows(), 2);
    }
}
