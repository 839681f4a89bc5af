"""A page that shows the doubtful frames of a render: source beside result."""
