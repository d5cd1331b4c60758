//! The exported functions that the table describes completely.

gpgpu_library::export_rows_of!(with_cusparse);
