"""What is deployed: the chart and the image."""
