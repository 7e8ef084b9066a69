"""Opening the database: whose it is, who may write to it, in which version its tables are, and what room it keeps."""
