"""One module for each kind of file: from bytes on disk to blocks of rows."""
