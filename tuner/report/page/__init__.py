"""Documents: blocks and charts, and how they become HTML, Markdown and SVG."""
